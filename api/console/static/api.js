// SPDX-License-Identifier: Apache-2.0
// Requests to the HTTP API of this gateway. The cookie of a session (session.js) goes along.

const BASE = new URL("../", document.baseURI);
const TRIES = 4;
const LONG_NUMBER = /\d{16}/; // JavaScript rounds no number of fewer digits

/** An error answer with its RFC 9457 problem details, or no answer (status 0). */
export class ProblemError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** Address of the gateway, without a slash at the end. */
export const origin = BASE.href.replace(/\/$/, "");

/** Its address as --http takes it. */
export const host = BASE.host;

/** Decode JSON. A whole number that JavaScript would round becomes a text of its digits. */
export function parse(text) {
  return LONG_NUMBER.test(text) ? JSON.parse(text, exact) : JSON.parse(text); // exact is called for each value: 40 ms for 10,000 topics
}

const exact = (_key, value, context) => (Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value);

/** Path of a resource from its parts, for example apiPath("topics", "orders", "route"). */
export const apiPath = (...parts) => `v1/${parts.map(encodeURIComponent).join("/")}`;

/** Path and query of a request, parameters that are empty left out. */
export function pathOf(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/**
 * Read. If the gateway is busy, wait and try again.
 * @returns {Promise<{body, epoch: ?number, offset: ?number, eventTime: ?string}>}
 * @throws {ProblemError}
 */
export async function get(path, params = {}, { signal, accept = "application/json", fine = [] } = {}) {
  for (let tries = 1; ; tries += 1) {
    const answer = await send("GET", pathOf(path, params), { signal, accept });
    if (answer.ok || fine.includes(answer.status)) return read(answer, accept);
    const after_s = Number(answer.headers.get("retry-after"));
    if (tries === TRIES || ![429, 503].includes(answer.status) || !(after_s <= 10)) throw await refusal(answer);
    await pause(1000 * Math.max(after_s, 0.2) * tries, signal);
  }
}

/** Write. It is sent once: the user decides whether to try again. */
export async function write(method, path, body) {
  const answer = await send(method, path, { body });
  if (!answer.ok) throw await refusal(answer);
  return answer.status === 204 ? null : (await read(answer, "application/json")).body;
}

/** Every page of a list, one after the other. `take` gets each body. */
export async function pages(path, params, { signal, take, most = 1000 }) {
  let cursor = null;
  let found;
  for (let page = 0; page < most; page += 1) {
    found = await get(path, { ...params, cursor }, { signal });
    cursor = found.body.nextCursor ?? null;
    take(found.body, found);
    if (cursor === null) break;
  }
  return found;
}

/** The answer as it comes, for streams. */
export async function open(path, headers, signal) {
  const answer = await send("GET", path, { signal, accept: "text/event-stream", headers });
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

async function send(method, path, { signal, accept = "application/json", body, headers = {} } = {}) {
  const sent = { accept, ...headers };
  if (body !== undefined) sent["content-type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  try {
    return await fetch(new URL(path.replace(/^\//, ""), BASE), {
      method, signal, headers: sent, body: text, credentials: "same-origin", redirect: "error",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ProblemError(0, { title: "No answer", detail: `the gateway at ${host} does not answer` });
  }
}

async function read(answer, accept) {
  const number = (name) => (answer.headers.has(name) ? Number(answer.headers.get(name)) : null);
  return {
    body: accept === "application/json" ? parse(await answer.text()) : await answer.text(),
    status: answer.status,
    epoch: number("x-routelake-epoch"),
    offset: number("x-routelake-offset"),
    eventTime: answer.headers.get("x-routelake-event-time"),
  };
}

async function refusal(answer) {
  let problem;
  try {
    problem = await answer.json();
  } catch {
    problem = { title: answer.statusText };
  }
  return new ProblemError(answer.status, problem);
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}
