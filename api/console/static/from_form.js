// SPDX-License-Identifier: Apache-2.0
// The field for the earlier of two points in time. It is the parameter "from" of the address, so the time bar marks it, too.

import { h, put } from "./dom.js";
import { here, set } from "./place.js";
import { MOMENTS, moment } from "./times.js";

/** {element, show()}: `show` is called when the page is loaded. `rest` are more elements of the form. */
export function fromForm(label, ...rest) {
  const field = h("input", { type: "text", "aria-label": `${label}: epoch, time, -2h`, placeholder: "epoch, time, -2h" });
  const said = h("span", { class: "bad", role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    const from = moment(field.value);
    put(said, from === null || from === "now" ? MOMENTS : null);
    if (!said.textContent) set({ from });
  };
  return {
    element: h("form", { class: "filters", on: { submit } }, h("label", null, `${label} `, field), h("button", null, "Compare"), rest, said),
    show: () => {
      if (document.activeElement !== field) field.value = here().params.get("from") ?? "";
    },
  };
}
