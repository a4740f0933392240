/* A job in a few words: what it runs, and how it stands. */

import { clipped } from "./format.js";
import { state } from "./parts.js";

/** What an item runs, in a few words. */
export function what(item) {
  const data = item.data;
  if (data && typeof data === "object") {
    if (typeof data.command === "string") return data.command;
    if (typeof data.task === "string") return `${data.task}(${clipped(called(data), 120)})`;
  }
  return clipped(JSON.stringify(data) ?? "", 200);
}

const called = ({ args = [], kwargs = {} }) =>
  [
    ...args.map((one) => JSON.stringify(one)),
    ...Object.entries(kwargs).map(([key, value]) => `${key}=${JSON.stringify(value)}`),
  ].join(", ");

export const itemState = (item) => {
  if (item.state === "leased") return state("running");
  if (item.state === "scheduled" && item.attempts) return state("retrying");
  return state(item.state);
};
