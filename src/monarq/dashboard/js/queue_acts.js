/* What can be done to a queue. Each asks first, and says what will be lost. */

import { get, path, post, remove } from "./api.js";
import { confirm, notice } from "./dialog.js";
import { count } from "./format.js";

export async function pause(queue) {
  return confirm({
    title: `Pause ${queue}?`,
    text: "Pops find nothing until it is resumed. Pushes and acks go on, so the backlog grows. Nothing is lost.",
    action: "Pause",
    act: async () => {
      await post(path`resources/queues/${queue}/pause`);
      notice(`${queue} is paused.`);
    },
  });
}

export async function resume(queue) {
  try {
    await post(path`resources/queues/${queue}/resume`);
    notice(`${queue} goes on.`);
  } catch (error) {
    notice(error.message, { bad: true });
  }
}

/** What can be removed of a work queue; an ordered queue is cleared as a whole. */
const CLEARED = {
  clear: { label: "All items", body: {} },
  clearScheduled: { label: "Only the scheduled items", body: { scheduledOnly: true } },
  clearUnleased: { label: "All but the leased items", body: { keepLeased: true } },
};

export async function clear(queue) {
  const lost = await get(path`dashboard/queues/${queue}/losses`);
  const choices = Object.keys(CLEARED).filter((one) => lost[one]);
  return confirm({
    title: `Clear ${queue}?`,
    text: "What is removed cannot be brought back. The queue, its options and its groups stay.",
    fields:
      choices.length > 1
        ? [
            {
              name: "which",
              label: "Remove",
              kind: "choice",
              value: "clear",
              options: choices.map((one) => [one, CLEARED[one].label]),
            },
          ]
        : [],
    losses: ({ which = "clear" }) => lost[which].text,
    typed: lost.clear.messages ? queue : undefined,
    action: "Clear the queue",
    danger: true,
    act: async ({ which = "clear" }) => {
      const answer = await post(path`resources/queues/${queue}/clear`, CLEARED[which].body);
      notice(`${count(answer.cleared)} removed from ${queue}.`);
    },
  });
}

export async function destroy(queue) {
  const { delete: lost } = await get(path`dashboard/queues/${queue}/losses`);
  if (lost.blockedBy.length) {
    notice(
      `${queue} is the dead queue of ${lost.blockedBy.join(", ")}, and cannot be deleted while it is.`,
      { bad: true },
    );
    return false;
  }
  return confirm({
    title: `Delete ${queue}?`,
    text: "The queue goes with all that belongs to it. This cannot be undone.",
    losses: lost.text,
    typed: queue,
    action: "Delete the queue",
    danger: true,
    act: async () => {
      await remove(path`resources/queues/${queue}`);
      notice(`${queue} is deleted.`);
    },
  });
}
