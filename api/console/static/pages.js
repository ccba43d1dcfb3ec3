// SPDX-License-Identifier: Apache-2.0
// The pages: title, what each is for, key, and how its module is loaded. This module runs before main.js has its imports, so the
// module of the first page is fetched with them.

import { here } from "./place.js";

export const PAGES = {
  dashboard: { title: "Dashboard", about: "See whether this routelake is ready, how much it holds, and what changed last.", load: async () => (await import("./page_dashboard.js")).dashboardPage, key: "d", isOfWindow: true },
  cluster: { title: "Cluster", about: "See every address of every broker group, alive or not. Wipe or add the write permission of a group.", load: async () => (await import("./page_cluster.js")).clusterPage, key: "c" },
  lifelines: { title: "Lifelines", about: "See when each address of each broker was registered, silent or expired, in the window of the time bar. Click a lane to see the nearest change.", load: async () => (await import("./page_lifelines.js")).lifelinesPage, key: "l", isOfWindow: true },
  topics: { title: "Topic", about: "Find a topic. Its name leads to its route, and \"last changed by\" leads to its history.", load: async () => (await import("./page_topics.js")).topicsPage, key: "t" },
  topic: { title: "Router", about: "See the route of a topic as clients get it, warnings, and the client that set each part.", load: async () => (await import("./page_topic.js")).topicPage, isHidden: true },
  history: { title: "History", about: "See the states of a topic or a broker one after the other, and every change.", load: async () => (await import("./page_history.js")).historyPage, isHidden: true },
  compare: { title: "Compare", about: "See the differences between an earlier time and the time of the bar.", load: async () => (await import("./page_compare.js")).comparePage, key: "x" },
  reports: { title: "Reports", about: "Answer a question about the window of the time bar. The link in each row leads to its changes.", load: async () => (await import("./page_reports.js")).reportsPage, key: "s", isOfWindow: true },
  audit: { title: "Audit Log", about: "Find a change or a refusal. Enter values in the fields to filter.", load: async () => (await import("./page_audit.js")).auditPage, key: "a" },
  ops: { title: "OPS", about: "See and change KV config. See the NameServer config, self-preservation and the epochs.", load: async () => (await import("./page_ops.js")).opsPage, key: "o" },
};

/** The page of a place. */
export function kindOf(place) {
  return PAGES[place.page] ?? PAGES.dashboard;
}

/** The module of a page is loaded when the page is first shown, so that the first page does not wait for the others. */
export function loadModule(kind) {
  kind.loading ??= kind.load().then((make) => { kind.make = make; });
  return kind.loading;
}

loadModule(kindOf(here())).catch(() => null); // main.js shows a failure
