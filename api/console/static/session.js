// SPDX-License-Identifier: Apache-2.0
// The user of the console and their permissions. The gateway keeps the token of a login for a session. The browser has a
// cookie that no script can read.

import { ProblemError, get, write } from "./api.js";
import { button, dialog, h, put } from "./dom.js";

const PATH = "console/session";

/** User, permissions and name of the command, as the gateway last said. Before that all is permitted here: the gateway decides anyway. */
export const standing = { user: null, mayRead: true, mayWrite: true, takesTokens: false, program: "routelake" };

/** Why an action is disabled; null: it is not. */
function whyNot() {
  if (standing.mayWrite) return null;
  if (standing.user !== null) return `${standing.user} may not: this needs the role admin`;
  return standing.takesTokens ? "Log in first: this needs the role admin" : "Changes are taken from the gateway's own machine only";
}

/** A button of an action, disabled for users without the permission. */
export function actionButton(props, ...children) {
  const why = whyNot();
  return h("button", { type: "button", ...props, disabled: why !== null, title: why }, ...children);
}

/** Get the user and permissions from the gateway. */
export async function learn() {
  Object.assign(standing, (await get(PATH)).body);
}

/** A button that names the user, and logs in or out; `changed` is called after that. */
export function logInButton(changed) {
  const element = button("", () => (standing.user === null ? logIn(changed) : logOut(changed)));
  return {
    element,
    show() {
      element.hidden = !standing.takesTokens && standing.user === null;
      put(element, standing.user === null ? "Log in" : `Log out ${standing.user}`);
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
  const box = dialog("Log in", {},
    h("h2", null, "Log in"),
    h("form", { on: { submit } },
      h("p", null, "A bearer token of this gateway. It keeps the token for twelve hours, or until you log out."),
      h("p", null, field), said,
      h("button", null, "Log in"), " ", button("Cancel", () => box.close())));
}

async function logOut(changed) {
  await write("DELETE", PATH);
  await learn();
  changed();
}
