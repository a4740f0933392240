/* What can be done about a group: skip a message that it fails on, seek, delete. */

import { path, post, remove } from "./api.js";
import { confirm, form, notice } from "./dialog.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { groupName } from "./parts.js";

const base = (group, queue) => path`consumer-groups/${group}/queues/${queue}`;
const inPartition = (group, queue, partition) =>
  base(group, queue) + path`/partitions/${partition}`;

/** Moves the message at the head of a partition to the dead letters. */
export function skipMessage({ group, queue, partition, seq, behind }) {
  return confirm({
    title: "Skip this message?",
    text: `It becomes a dead letter of ${groupName(group)}, from where it can be looked at and redriven. ${
      behind
        ? `${plural(behind, "message")} behind it in ${partition} can go on.`
        : `What is behind it in ${partition} can go on.`
    }`,
    action: "Skip to the dead letters",
    act: async () => {
      await post(`${inPartition(group, queue, partition)}/skip`, { seq, error: "skipped by hand" });
      notice(`Skipped. ${partition} goes on.`);
    },
  });
}

/** Delivers it again at once, with its failures forgotten. */
export function retryMessage({ group, queue, partition, seq }) {
  return confirm({
    title: "Try it again now?",
    text: "It is delivered again at once, and its failed tries are forgotten. A lease on it ends.",
    action: "Try again",
    act: async () => {
      await post(`${inPartition(group, queue, partition)}/seek`, { seq });
      notice("It will be delivered again.");
    },
  });
}

const body = ({ to, time, seq }) => {
  if (to === "time") return { timestamp: new Date(time).toISOString() };
  if (to === "seq") return { seq: Number(seq) };
  return { to };
};

const local = (time) => {
  const at = new Date(time - new Date(time).getTimezoneOffset() * 60_000);
  return at.toISOString().slice(0, 19);
};

/** Moves a group in a queue, or in one partition of it, with a preview of what that means. */
export function seek({ group, queue, partition }) {
  const where = partition ? inPartition(group, queue, partition) : base(group, queue);
  const ready = ({ to, time, seq }) =>
    to === "time" ? Boolean(time) : to !== "seq" || Number(seq) >= 1;
  return form({
    title: partition
      ? `Move ${groupName(group)} in ${partition}`
      : `Move ${groupName(group)} in ${queue}`,
    intro: h(
      "p.soft",
      null,
      "Back: what it has consumed is delivered again. Forward: what is between is never delivered to it.",
    ),
    fields: [
      {
        name: "to",
        label: "To",
        kind: "choice",
        value: "time",
        options: [
          ["time", "a time"],
          ["start", "the start: everything that is kept"],
          ["end", "the end: only what comes from now on"],
          ["seq", "a seq"],
        ],
      },
      {
        name: "time",
        label: "Time (yours)",
        kind: "datetime-local",
        step: "1",
        value: local(Date.now() - 3_600_000),
        when: ({ to }) => to === "time",
        check: (value) => (value ? null : "Needed."),
      },
      {
        name: "seq",
        label: "Seq",
        kind: "number",
        value: "1",
        when: ({ to }) => to === "seq",
        hint: partition ? null : "In each partition.",
        check: (value) =>
          Number.isInteger(Number(value)) && Number(value) >= 1
            ? null
            : "A whole number from 1 on.",
      },
    ],
    preview: async (values) => {
      if (!ready(values)) return null;
      const seen = await post(`${where}/seek/preview`, body(values));
      return h(
        "div.losses",
        { class: seen.skipped ? "" : "losses-none" },
        h("p", null, h("b", null, plural(seen.replayed, "message")), " will be delivered again."),
        h(
          "p",
          null,
          h("b", null, plural(seen.skipped, "message")),
          " will never be delivered to it.",
        ),
        h(
          "p.soft",
          null,
          `Moves in ${plural(seen.partitions, "partition")}; ${plural(seen.leases, "lease")} end; ${count(seen.lag)} will be before it.`,
        ),
      );
    },
    action: "Move the group",
    act: async (values) => {
      const answer = await post(`${where}/seek`, body(values));
      notice(`Moved. ${plural(answer.lag, "message")} before it now.`);
    },
  });
}

/** Deletes a group from one queue. */
export function destroyGroup({ group, queue, lag }) {
  return confirm({
    title: `Delete ${groupName(group)} from ${queue}?`,
    losses: [
      "Where it had come to in every partition is forgotten.",
      lag
        ? `${plural(lag, "message")} that it has not consumed will not be waited for any more.`
        : "It has consumed everything.",
      "A consumer that comes back under this name begins anew.",
    ],
    typed: group,
    action: "Delete the group",
    danger: true,
    act: async () => {
      await remove(base(group, queue));
      notice(`${groupName(group)} is deleted from ${queue}.`);
    },
  });
}
