/* Calls to the broker. The session is an HttpOnly cookie that no script can read; unsafe calls
   carry the CSRF token, which lives in memory only. Nothing secret is ever put into an address. */

const BASE = new URL("api/v1/", document.baseURI);
const TIMEOUT_MS = 30_000;

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  get unreachable() {
    return this.status === 0;
  }
}

let csrf = null;
const watchers = { unauthorised: () => {}, reached: () => {} };

export function setCsrf(token) {
  csrf = token;
}

/** `unauthorised()` when a call needs a sign-in; `reached(whether)` after each call. */
export function watch(handlers) {
  Object.assign(watchers, handlers);
}

/** A path with its parts encoded: path`queues/${name}/clear`. */
export function path(strings, ...parts) {
  return strings.reduce((whole, text, index) => {
    if (index === 0) return text;
    return whole + segment(parts[index - 1]) + text;
  }, "");
}

// A browser takes "." and ".." as steps in a path, however they are encoded.
function segment(name) {
  const text = String(name);
  if (text === "." || text === "..") {
    throw new ApiError(
      400,
      "unaddressable",
      `No browser can ask for "${text}"; use the command line.`,
    );
  }
  return encodeURIComponent(text);
}

export function address(where, query) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) url.searchParams.append(name, one);
  }
  return url;
}

async function call(method, where, { query, body, text: sent, signal } = {}) {
  const headers = { Accept: "application/json" };
  const content = sent ?? (body === undefined ? undefined : JSON.stringify(body));
  if (content !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && csrf) headers["X-CSRF-Token"] = csrf;
  let response;
  let text;
  try {
    const limit = AbortSignal.timeout(TIMEOUT_MS);
    response = await fetch(address(where, query), {
      method,
      headers,
      body: content,
      credentials: "same-origin",
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    watchers.reached(false);
    throw new ApiError(0, "unreachable", "The broker does not answer.");
  }
  watchers.reached(true);
  const answer = parsed(text);
  if (response.ok) return answer;
  if (response.status === 401) watchers.unauthorised();
  throw new ApiError(
    response.status,
    answer?.code ?? "error",
    answer?.error ?? `The broker answered ${response.status}.`,
  );
}

function parsed(text) {
  if (!text) return null;
  try {
    return JSON.parse(text, exactly);
  } catch {
    return null;
  }
}

// Numbers that JavaScript would round are kept as they were written, to be shown so.
function exactly(key, value, context) {
  if (typeof value !== "number" || !context || !JSON.rawJSON) return value;
  if (
    Math.abs(value) <= Number.MAX_SAFE_INTEGER &&
    (Number.isInteger(value) || context.source.length < 17)
  ) {
    return value;
  }
  return String(value) === context.source ? value : JSON.rawJSON(context.source);
}

/** A POST whose body is JSON text already. */
export const postText = (where, text) => call("POST", where, { text });
export const get = (where, query, signal) => call("GET", where, { query, signal });
export const post = (where, body, query) => call("POST", where, { body, query });
export const put = (where, body) => call("PUT", where, { body });
export const remove = (where, query) => call("DELETE", where, { query });
