/* Where what somebody typed into the box at the top leads. */

import { get } from "./api.js";
import { go } from "./router.js";

const GROUP = "group ";

/** Names that it may become. */
export async function suggestions(text) {
  const [queues, groups] = await Promise.all([
    get("dashboard/queues", { search: text, limit: 8 }),
    get("dashboard/groups", { search: text, limit: 5 }),
  ]);
  return [
    ...queues.queues.map((one) => one.name),
    ...new Set(groups.groups.map((one) => GROUP + one.name)),
  ];
}

/** Opens the queue, message, item or group, or the list that is nearest. */
export async function find(text) {
  if (text.startsWith(GROUP)) return go(["groups"], { search: text.slice(GROUP.length) });
  const queues = await get("dashboard/queues", { search: text, limit: 50 });
  if (queues.queues.some((one) => one.name === text)) return go(["queues", text]);
  if (/^\d+-\d+$/.test(text)) {
    const { found } = await get("dashboard/find", { transactionId: text });
    if (found.length) {
      const [one] = found;
      return one.kind === "item" ? go(["jobs", one.id]) : go(["messages", one.partitionId, one.id]);
    }
  }
  if (queues.queues.length) return go(["queues"], { search: text });
  const groups = await get("dashboard/groups", { search: text, limit: 1 });
  if (groups.groups.length) return go(["groups"], { search: text });
  return go(["messages"], { find: text });
}
