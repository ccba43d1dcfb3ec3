// SPDX-License-Identifier: Apache-2.0
// The writes of the console. Each shows the difference, asks, sends the write once, and shows the receipt: offset, outcome, and
// the changed rows from the history.

import { ProblemError, apiPath, get, pathOf, write } from "./api.js";
import { button, dialog, h, plainTable, put, show } from "./dom.js";
import { both } from "./times.js";
import { arrow, brief, perm, withoutWrite } from "./words.js";

const RECEIPT_MS = 10000;
const MOST = 1000;

/** Delete a topic in the NameServer. */
export function deleteTopic(topic, at) {
  const path = apiPath("topics", topic);
  return act({
    title: `Delete topic ${topic}`, verb: "Delete", at,
    warning: "Delete the topic on the brokers first. Otherwise their next registration brings it back.",
    method: "DELETE", path, of: { topic },
    plan: async () => {
      const { body } = await get(`${path}/route`, { missing: "empty" });
      return body.queueDatas.map(({ brokerName, readQueueNums, writeQueueNums, perm: bits }) => ({
        key: { topic, brokerName }, before: { readQueueNums, writeQueueNums, perm: bits }, after: null,
      }));
    },
  });
}

/** Wipe or add the write permission of a broker. */
export function writePerm(brokerName, isTaken, at) {
  return act({
    title: isTaken ? `Wipe write permission of ${brokerName}` : `Add write permission to ${brokerName}`,
    verb: isTaken ? "Wipe" : "Add", at,
    warning: isTaken ? "Producers send nothing to it until it registers with a new dataVersion."
      : `Every topic of the broker gets the permission ${perm(6)}, whatever it had.`,
    method: "POST", path: apiPath("brokers", brokerName, isTaken ? "wipe-write-perm" : "add-write-perm"),
    of: { brokerName },
    plan: async () => {
      const { body } = await get(apiPath("brokers", brokerName));
      return [{
        key: { brokerName, topics: body.topicCount }, before: { perm: "as it is" },
        after: { perm: isTaken ? `without W (${perm(6)} becomes ${perm(withoutWrite(6))})` : perm(6) },
      }];
    },
  });
}

/** Put a value; null deletes the key. */
export function putKv(namespace, key, value, at) {
  const entries = apiPath("kv", namespace);
  const path = apiPath("kv", namespace, key);
  return act({
    title: `${value === null ? "Delete" : "Put"} ${namespace} ${key}`, verb: value === null ? "Delete" : "Put", at,
    method: value === null ? "DELETE" : "PUT", path, body: value === null ? undefined : { value }, of: { tableName: "kvConfigTable" },
    plan: async () => {
      const { table } = (await get(entries, { missing: "empty" })).body;
      const before = Object.hasOwn(table, key) ? { value: table[key] } : null;
      if (before === null && value === null) return [];
      return [{ key: { namespace, key }, before, after: value === null ? null : { value } }];
    },
  });
}

async function act({ title, verb, warning = null, method, path, body, of, plan, at }) {
  const rows = h("div", { class: "diff" });
  const said = h("div", { role: "status" });
  const yes = button(verb, apply, { class: "danger", disabled: true });
  const no = button("Cancel", () => box.close());
  const box = dialog(title, { class: "act", onClose: at.reload },
    h("h2", null, title), warning && h("p", null, warning), h("h3", null, "What will be different"), rows, said,
    h("p", null, yes, " ", no));
  let planned = "";
  await look();

  async function look() {
    try {
      const found = await plan();
      planned = JSON.stringify(found);
      put(rows, found.length ? table(found) : h("p", null, "Nothing."));
      yes.disabled = false;
      no.focus();
    } catch (error) {
      refused(error);
    }
  }

  async function apply() {
    yes.disabled = true;
    try {
      if (JSON.stringify(await plan()) !== planned) {
        put(said, "Something has changed since you opened this dialog. Check the new difference.");
        await look();
        return;
      }
      const receipt = await write(method, path, body);
      put(no, "Close");
      show(yes, false);
      await told(receipt);
    } catch (error) {
      refused(error);
    }
  }

  async function told(receipt) {
    const head = [h("h3", null, "Receipt"), h("p", { class: "receipt" },
      `${receipt.outcome} at ${both(receipt.eventTime)}, log offset `, h("b", null, receipt.offset))];
    put(said, head, h("p", null, "Waiting for the tables …"));
    const asked = { ...of, limit: MOST, wait_for: receipt.offset, wait_timeout: RECEIPT_MS };
    try {
      const found = await get(pathOf("v1/changes", asked));
      const own = found.body.changes.filter((row) => row.offset === receipt.offset && row.tableName);
      put(said, head, own.length ? table(own) : h("p", null, "No row is different."));
    } catch (error) {
      put(said, head, h("p", null, `The write is durable, but the tables do not have it yet: ${error.message}. See it later in the Audit Log.`));
    }
  }

  function refused(error) {
    if (!(error instanceof ProblemError)) throw error;
    put(said, h("p", { class: "bad" }, `${error.problem.title ?? "Refused"}: ${error.message}`));
  }
}

const table = (rows) => plainTable(["Target", "Before → After"], rows.map((row) => [brief(row.key), arrow(row.before, row.after)]));
