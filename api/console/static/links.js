// SPDX-License-Identifier: Apache-2.0
// Links from names in tables to the histories of what they name.

import { h } from "./dom.js";
import { link } from "./place.js";

export const brokerLink = (name) => h("a", { href: link("history", name, { of: "broker" }) }, name);

export const topicLink = (name) => h("a", { href: link("history", name) }, name);
