// SPDX-License-Identifier: Apache-2.0
// Elements from values. Text stays text: no module makes HTML from a string.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element.
 * @param {string} tag
 * @param {Object} props attributes; `on` has listeners by event; true is an attribute without a value, false and null none
 * @param {...(Node|string|number|null|Array)} children null is left out
 */
export function h(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/** A button that submits no form. */
export function button(text, onClick, props = {}) {
  return h("button", { type: "button", ...props, on: { click: onClick } }, text);
}

/** A modal dialog that is open now, and is removed when it is closed; `onClose` is called then. */
export function dialog(label, { onClose, ...props }, ...children) {
  const box = h("dialog", { "aria-label": label, ...props, on: { close: () => { box.remove(); onClose?.(); } } }, children);
  document.body.append(box);
  box.showModal();
  return box;
}

/** A table of a few rows, which are elements or lists of cells. `caption` is for those who do not see it. */
export function plainTable(titles, rows, { caption = null, ...props } = {}) {
  return h("table", { class: "plain", ...props }, caption && h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, titles.map((title) => (title instanceof Node ? title : h("th", { scope: "col" }, title))))),
    h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell) => (cell?.matches?.("td, th") ? cell : h("td", null, cell)))))));
}

/** Put other children into an element. */
export function put(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Elements that a condition shows. */
export function show(element, isShown) {
  element.hidden = !isShown;
  return element;
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}
