// SPDX-License-Identifier: Apache-2.0
// The shell: which page, at which moment, live or not. A page is {title, element, load(at)}: made once for a name, and
// loaded anew whenever the moment, a parameter, or at "now" the world changes.

import { ProblemError, get } from "./api.js";
import { auditPage } from "./page_audit.js";
import { clusterPage } from "./page_cluster.js";
import { comparePage } from "./page_compare.js";
import { dashboardPage } from "./page_dashboard.js";
import { h, put, show } from "./dom.js";
import { historyPage } from "./page_history.js";
import { lifelinesPage } from "./page_lifelines.js";
import { Live } from "./live.js";
import { opsPage } from "./page_ops.js";
import { here, link, set } from "./place.js";
import { learn, logIn, logInButton, standing } from "./session.js";
import { TimeBar } from "./timebar.js";
import { both, moment } from "./times.js";
import { topicPage } from "./page_topic.js";
import { topicsPage } from "./page_topics.js";
import { help } from "./help.js";

const PAGES = {
  dashboard: { title: "Dashboard", make: dashboardPage, key: "d", isOfWindow: true },
  cluster: { title: "Cluster", make: clusterPage, key: "c" },
  lifelines: { title: "Lifelines", make: lifelinesPage, key: "l", isOfWindow: true },
  topics: { title: "Topic", make: topicsPage, key: "t" },
  topic: { title: "Router", make: topicPage, isHidden: true },
  history: { title: "History", make: historyPage, isHidden: true },
  compare: { title: "Compare", make: comparePage, key: "x" },
  audit: { title: "Audit Log", make: auditPage, key: "a" },
  ops: { title: "OPS", make: opsPage, key: "o" },
};
const ONLY_SHOWN = ["q", "kinds", "zoom", "change"]; // parameters that change what is shown of what was loaded
const LIVE_MS = 300;
const REST = 4; // live updates leave the gateway alone for so many times as long as the last one took

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const notice = h("div", { id: "notice", role: "alert" });
const links = Object.fromEntries(Object.entries(PAGES).filter(([, found]) => !found.isHidden)
  .map(([name, found]) => [name, h("a", null, found.title)]));
const nav = h("nav", { "aria-label": "Pages" }, Object.values(links));
const liveState = h("span", { class: "live" }, "not live");
const liveBox = h("input", { type: "checkbox", checked: true, id: "live", on: { change: settle } });
let page = null; // {key, asked, title, element, load}
let loading = Promise.resolve();
let stopLoading = new AbortController();
let soon = null;
let took_ms = 0;
let news = new Set(); // topics that live events named since the last load; null: any

const bar = new TimeBar(document.getElementById("time"), () => loading);
const live = new Live({
  onEpoch: (event) => {
    bar.grown(event.epoch, event.eventTime);
    if (here().params.get("as_of") !== null) return;
    if (event.topicCount > event.topics.length) news = null;
    event.topics.forEach((topic) => news?.add(topic));
    soon ??= setTimeout(() => reload(news), Math.max(LIVE_MS, REST * took_ms));
  },
  onReset: (event) => {
    bar.grown(event.epoch);
    reload(null);
  },
  onState: (state) => put(liveState, { on: "live", off: "not live", lost: "no connection", refused: "not logged in" }[state]),
});

const who = logInButton(begin);
const sites = h("span");
put(document.getElementById("top"),
  h("a", { class: "name", href: "#/dashboard" }, "routelake"), nav,
  h("span", { class: "right" }, h("label", { for: "live" }, liveBox, " ", liveState), sites, who.button,
    h("button", { type: "button", on: { click: help } }, "Keys")));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", arrived);
addEventListener("keydown", keyed);
begin();

/** Learn who sits here, load the page as they may see it, learn of the epochs, and listen from the newest of them on. */
async function begin() {
  live.set(false);
  await learn().catch(() => null); // the page's own reads say what is wrong
  who.show();
  page = null;
  arrived();
  if (!standing.mayRead) return;
  learnSites().catch(() => null);
  bar.begin().then(() => {
    live.lastId ??= String(bar.newest);
    settle();
  }, complain);
}

function settle() {
  live.set(standing.mayRead && live.lastId !== null && liveBox.checked && here().params.get("as_of") === null);
}

/** The address is another one. */
function arrived() {
  const place = here();
  const asked_at = place.params.get("as_of");
  const found_at = asked_at === null ? null : moment(asked_at);
  if (found_at !== null && found_at !== asked_at && !/^\d{4}-/.test(asked_at)) { // -1h, 03:00: a time that stays what it is
    set({ as_of: found_at === "now" ? null : found_at }, { replace: true });
    return;
  }
  const kind = PAGES[place.page] ?? PAGES.dashboard;
  const key = `${place.page}/${place.name}/${place.params.get("of") ?? ""}`;
  const asked = question(place.params) + (kind.isOfWindow ? place.params.get("zoom") ?? "" : "");
  for (const [name, found] of Object.entries(links)) {
    found.href = link(name);
    if (name === place.page) found.setAttribute("aria-current", "page");
    else found.removeAttribute("aria-current");
  }
  bar.show();
  settle();
  if (page?.key === key && page.asked === asked) return;
  if (page?.key !== key) {
    if (page) main.focus();
    page = { key, ...kind.make(place.name) };
    put(main, h("h1", null, page.title ?? kind.title), notice, page.element);
    document.title = `${page.title ?? kind.title} · routelake`;
  }
  page.asked = asked;
  reload(null);
}

function question(params) {
  const found = new URLSearchParams(params);
  for (const name of ONLY_SHOWN) found.delete(name);
  return found.toString();
}

/** Load the page. `changed` are the topics that may be others than they were; null: any. */
function reload(changed) {
  clearTimeout(soon);
  soon = null;
  news = new Set();
  stopLoading.abort();
  stopLoading = new AbortController();
  if (!standing.mayRead) { // what is refused would be told of, in the history, too
    askLogIn();
    return;
  }
  loading = load(page, stopLoading.signal, changed);
}

async function load(wanted, signal, changed) {
  const began_ms = performance.now();
  const { params } = here();
  const asOf = params.get("as_of");
  const at = {
    asOf, params, signal, changed,
    isNow: asOf === null,
    reload: () => reload(null),
    epoch: () => bar.newest, // the newest that the console knows of
    /** An answer came: the bar and the banner say which cut it is. */
    cut: (answer) => {
      if (asOf !== null && answer.epoch !== null) bar.at(answer);
      if (asOf !== null && answer.eventTime) tell(answer, asOf);
    },
  };
  document.body.classList.toggle("past", !at.isNow);
  if (at.isNow) show(banner, false);
  main.setAttribute("aria-busy", "true");
  try {
    await wanted.load(at);
    took_ms = performance.now() - began_ms;
    if (!signal.aborted) put(notice);
  } catch (error) {
    if (signal.aborted) return;
    show(banner, false);
    complain(error);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

function tell(answer, asOf) {
  const time = /^\d+$/.test(asOf) ? answer.eventTime : asOf;
  put(banner, `This is how it was at ${both(time)}, epoch ${answer.epoch}. You cannot change anything at an earlier time. `,
    h("button", { type: "button", on: { click: () => bar.now() } }, "Back to now"));
  show(banner, true);
}

function complain(error) {
  if (!(error instanceof ProblemError)) {
    put(notice, h("p", { class: "bad" }, `The console has a defect: ${error.message}`));
    throw error;
  }
  if (error.status === 401) askLogIn(); // the session has ended
  else put(notice, h("p", { class: "bad" }, h("b", null, error.problem.title ?? "Refused"), `: ${error.message}`));
}

function askLogIn() {
  put(notice, h("p", null, "This gateway shows nothing to whom it does not know. ",
    h("button", { type: "button", on: { click: () => logIn(begin) } }, "Log in")));
}

/** Other routelakes, if the gateway was given a list: links to their own consoles, at the same page and time. */
async function learnSites() {
  const { body } = await get("console/sites.json");
  if (!body.sites.length) return;
  const choice = h("select", { "aria-label": "Other routelakes", on: { change: () => {
    if (choice.value) location.assign(`${choice.value}/console/${elsewhere()}`);
  } } }, h("option", { value: "" }, "this routelake"),
  body.sites.map((site) => h("option", { value: site.url }, site.name)));
  put(sites, choice);
}

/** Epochs are of one lake alone; times are everybody's. */
function elsewhere() {
  const { page: name, name: of, params } = here();
  const isEpoch = (key) => /^\d+$/.test(params.get(key) ?? "");
  return link(name, of, { ...(isEpoch("as_of") ? { as_of: bar.times.get(Number(params.get("as_of"))) } : {}), ...(isEpoch("from") ? { from: null } : {}), zoom: null });
}

function keyed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  const { target } = event;
  if (target.matches("textarea, select, input:not([type=range]):not([type=checkbox])")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const act = {
    ",": () => bar.step(-1), ".": () => bar.step(1), "<": () => bar.step(-10), ">": () => bar.step(10),
    n: () => bar.now(), p: () => bar.play(), m: () => bar.mark(), r: () => reload(null), "?": help,
    "+": () => bar.zoom(1 / 2), "-": () => bar.zoom(2), 0: () => bar.zoomTo(null),
    g: () => document.getElementById("goto").focus(),
    "/": () => main.querySelector("input[type=search]")?.focus(),
    Escape: () => set({ from: null }),
  }[event.key] ?? jump(event.key);
  if (!act) return;
  event.preventDefault();
  act();
}

function jump(key) {
  const found = Object.entries(PAGES).find(([, wanted]) => wanted.key === key);
  return found && (() => { location.hash = link(found[0]); });
}
