/* A dead letter, opened; and what can be done with some or all of them. */

import { post, remove } from "./api.js";
import { confirm, form, notice } from "./dialog.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { button, facts, groupName, messageLink, moment, name, panel, queueLink } from "./parts.js";
import { payload } from "./payload.js";

/** `what`: a filter, ids, or all. Resolves whether it was done. */
export async function redriveLetters(what, number, words) {
  const done = await form({
    title: `Redrive ${words}?`,
    intro: h(
      "p.soft",
      null,
      "Each goes back to its own queue, at the end of its partition, for the group that failed on it alone. It is no dead letter any more.",
    ),
    fields: [
      {
        name: "toQueue",
        label: "To another queue",
        hint: "May be left empty: back to where each came from.",
      },
    ],
    action: `Redrive ${number === null ? "" : count(number)}`.trim(),
    act: async ({ toQueue }) => {
      const answer = await post("dlq/redrive", {
        ...what,
        limit: 100_000,
        ...(toQueue && { toQueue }),
      });
      notice(`${plural(answer.redriven, "message")} redriven.`);
    },
  });
  return done !== null;
}

/** The same, for good. */
export function purgeLetters(what, number, words) {
  return confirm({
    title: `Purge ${words}?`,
    losses: [`${plural(number, "dead letter")} with payload and error, for good.`],
    typed: what.all ? "purge" : undefined,
    action: "Purge",
    danger: true,
    act: async () => {
      const answer = await remove("dlq", what);
      notice(`${plural(answer.deleted, "dead letter")} purged.`);
    },
  });
}

/** One dead letter, opened. */
export function letterView(ctx, one, { redrive, purge }) {
  return panel(
    "Inside",
    {
      note: one.transactionId,
      actions: [
        ctx.can("write") &&
          button("Redrive this one", () => redrive({ ids: [one.id] }, 1, "this dead letter"), {
            main: true,
          }),
        ctx.can("admin") &&
          button("Purge this one", () => purge({ ids: [one.id] }, 1, "this dead letter"), {
            danger: true,
          }),
      ],
    },
    h("p.poison-error", null, one.errorMessage || "(no error was given)"),
    facts([
      ["Queue", queueLink(one.queue)],
      ["Partition", name(one.partition)],
      ["Group", one.consumerGroup ? name(groupName(one.consumerGroup)) : null],
      ["Message", messageLink(one.partitionId, one.messageId)],
      ["Tries", count(one.attempts)],
      ["Pushed", moment(one.createdAt)],
      ["Died", moment(one.failedAt)],
      ["Pushed by", one.producerSub && name(one.producerSub)],
      ["Trace id", one.traceId && h("span.mono", null, one.traceId)],
    ]),
    payload("inside", one.data),
    one.headers &&
      Object.keys(one.headers).length > 0 &&
      payload("inside-headers", one.headers, { small: true, label: "Headers" }),
  );
}
