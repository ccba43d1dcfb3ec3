// SPDX-License-Identifier: Apache-2.0
// Who sits here, and what they may do: a session that the gateway keeps for a token that was given once.
//
// The token goes to the gateway and stays there. The browser holds a cookie that no script can read, this one included.

import { ProblemError, get, write } from "./api.js";
import { h, put } from "./dom.js";

const PATH = "console/session";

/** What the gateway says of whoever sits here. Until it has said so, everybody may: it decides anyway. */
export const standing = { user: null, mayRead: true, mayWrite: true, takesTokens: false };

/** Why an action is not offered; null: it is. */
export function whyNot() {
  if (standing.mayWrite) return null;
  if (standing.user !== null) return `${standing.user} may not: this needs the role admin`;
  return standing.takesTokens ? "Log in first: this needs the role admin" : "Changes are taken from the gateway's own machine only";
}

/** A button of an action, which cannot be pressed by who may not. */
export function actionButton(props, ...children) {
  const why = whyNot();
  return h("button", { type: "button", ...props, disabled: why !== null, title: why }, ...children);
}

/** Ask anew. */
export async function learn() {
  Object.assign(standing, (await get(PATH)).body);
}

/** A button that says who it is, and logs in or out; `changed` is called when that is another. */
export function logInButton(changed) {
  const button = h("button", { type: "button", on: { click: () => (standing.user === null ? logIn(changed) : logOut(changed)) } });
  return {
    button,
    show() {
      button.hidden = !standing.takesTokens && standing.user === null;
      put(button, standing.user === null ? "Log in" : `Log out ${standing.user}`);
    },
  };
}

/** Ask for a token. */
export function logIn(changed) {
  const field = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", required: true });
  const said = h("p", { class: "bad", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    try {
      Object.assign(standing, await write("POST", PATH, { token: field.value.trim() }));
      box.close();
      changed();
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      put(said, error.message);
      field.select();
    }
  };
  const box = h("dialog", { "aria-label": "Log in", on: { close: () => box.remove() } },
    h("h2", null, "Log in"),
    h("form", { on: { submit } },
      h("p", null, "A bearer token of this gateway. It keeps the token for twelve hours, or until you log out."),
      h("p", null, field), said,
      h("button", null, "Log in"), " ", h("button", { type: "button", on: { click: () => box.close() } }, "Cancel")));
  document.body.append(box);
  box.showModal();
}

async function logOut(changed) {
  await write("DELETE", PATH);
  await learn();
  changed();
}
