// SPDX-License-Identifier: Apache-2.0
// A field for a point in time. The earlier of two is the parameter "from" of the address, so the time bar marks it, too.

import { h, put } from "./dom.js";
import { here, set } from "./place.js";
import { TIME_FORMS, readTime } from "./times.js";

/** {element, field}: `take` gets what `readTime` makes of the text. `rest` are more elements of the form. */
export function timeForm({ label, verb, isNowTaken, take, rest = [], ...props }) {
  const field = h("input", { type: "text", "aria-label": `${label}: epoch, time, -2h`, placeholder: "epoch, time, -2h", ...props });
  const said = h("span", { class: "bad", role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    const found = readTime(field.value);
    const isTaken = found !== null && (isNowTaken || found !== "now");
    put(said, isTaken ? null : TIME_FORMS);
    if (isTaken) take(found);
  };
  return { field, element: h("form", { class: isNowTaken ? null : "filters", on: { submit } }, isNowTaken ? field : h("label", null, `${label} `, field), h("button", null, verb), rest, said) };
}

/** {element, show()}: `show` is called when the page is loaded. */
export function fromForm(label, ...rest) {
  const { element, field } = timeForm({ label, verb: "Compare", isNowTaken: false, take: (from) => set({ from }), rest });
  return {
    element,
    show: () => {
      if (document.activeElement !== field) field.value = here().params.get("from") ?? "";
    },
  };
}
