/* Pushing a message or an item by hand. */

import { get, postText } from "./api.js";
import { form, notice } from "./dialog.js";
import { go } from "./router.js";

const json = (text) => {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `Not JSON: ${error.message}`;
  }
};

const object = (text) => {
  if (!text.trim()) return null;
  const wrong = json(text);
  if (wrong) return wrong;
  const value = JSON.parse(text);
  return value !== null && typeof value === "object" && !Array.isArray(value)
    ? null
    : "This must be an object.";
};

/** Asks for a payload and pushes it. `line` says of which queue, if it is known. */
export async function pushByHand(line, { partition = "" } = {}) {
  const known = line ? [] : (await get("dashboard/queues", { limit: 200 })).queues;
  const kind = (queue) => line?.kind ?? known.find((one) => one.name === queue)?.kind ?? "ordered";
  const ordered = ({ queue }) => kind(queue) === "ordered";
  const work = ({ queue }) => kind(queue) === "work";
  const pushed = await form({
    title: line ? `Push to ${line.name}` : "Push a message",
    wide: true,
    fields: [
      ...(line
        ? []
        : [
            {
              name: "queue",
              label: "Queue",
              required: true,
              suggestions: known.map((one) => one.name),
            },
          ]),
      {
        name: "payload",
        label: "Payload",
        kind: "text",
        value: "{\n  \n}",
        hint: "Any JSON value.",
        check: json,
      },
      {
        name: "partition",
        label: "Partition",
        value: partition,
        placeholder: "Default",
        when: ordered,
      },
      {
        name: "transactionId",
        label: "Transaction id",
        hint: "Pushed again with the same id, it is a duplicate. May be left empty.",
      },
      {
        name: "headers",
        label: "Headers",
        kind: "text",
        rows: 2,
        hint: "A JSON object. May be left empty.",
        check: object,
      },
      { name: "priority", label: "Priority", kind: "number", when: work },
      { name: "delaySeconds", label: "Delay", kind: "number", unit: "s", step: "any", when: work },
    ],
    action: "Push",
    act: async (values) => {
      const queue = line?.name ?? values.queue;
      const item = { queue };
      if (values.transactionId) item.transactionId = values.transactionId;
      if (ordered({ queue }) && values.partition) item.partition = values.partition;
      if (work({ queue }) && values.priority) item.priority = Number(values.priority);
      if (work({ queue }) && values.delaySeconds) item.delaySeconds = Number(values.delaySeconds);
      // The payload goes as it was typed: parsing it would round long numbers.
      const rest = JSON.stringify(item).slice(1, -1);
      const headers = values.headers.trim() ? `,"headers":${values.headers}` : "";
      const [answer] = await postText(
        "push",
        `{"items":[{${rest},"payload":${values.payload}${headers}}]}`,
      );
      return { ...answer, kind: kind(queue) };
    },
  });
  if (!pushed) return null;
  if (pushed.status === "buffered")
    notice("It is kept in a file, and stored when the store is back.");
  else
    notice(
      pushed.status === "duplicate"
        ? `That was there already, with seq ${pushed.seq}.`
        : `Pushed: ${pushed.message_id}.`,
    );
  return pushed;
}

/** Where a push can be looked at. */
export function openPushed(pushed) {
  if (pushed.status === "buffered") return;
  if (pushed.kind === "work") go(["jobs", pushed.message_id]);
  else go(["messages", pushed.partition_id, pushed.message_id]);
}
