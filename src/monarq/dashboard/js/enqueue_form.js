/* Enqueueing a job by hand: a shell command, or a task. */

import { post } from "./api.js";
import { form, notice } from "./dialog.js";
import { openPushed } from "./push_form.js";

/** `queues`: the work queues there are; `queue`: the one that is looked at. */
export async function enqueue(ctx, queues, queue) {
  const commands = queues.filter((one) => one.runsCommands).map((one) => one.name);
  const runs = (name) => commands.includes(name);
  const made = await form({
    title: "Enqueue a job",
    wide: true,
    fields: [
      {
        name: "queue",
        label: "Queue",
        required: true,
        value: queue || "jobs",
        suggestions: queues.map((one) => one.name),
      },
      {
        name: "command",
        label: "Command",
        kind: "text",
        rows: 3,
        when: (all) => runs(all.queue),
        hint: "Run by /bin/sh on the worker's machine.",
        check: (value, all) =>
          runs(all.queue) && !value.trim()
            ? "Needed."
            : ctx.can("jobs") || !runs(all.queue)
              ? null
              : ctx.session().auth
                ? "Your role may not enqueue commands."
                : "To enqueue commands, open the link that `monarq serve` printed when it started.",
      },
      {
        name: "payload",
        label: "Payload",
        kind: "text",
        rows: 5,
        value: '{"task": "module:function", "args": []}',
        when: (all) => !runs(all.queue),
        hint: "A task with its arguments, or any JSON value for consumers of your own.",
        check: (value) => {
          try {
            JSON.parse(value);
            return null;
          } catch (error) {
            return `Not JSON: ${error.message}`;
          }
        },
      },
      { name: "id", label: "Id", hint: "May be left empty. The same id again is a duplicate." },
      { name: "priority", label: "Priority", kind: "number" },
      { name: "delaySeconds", label: "Delay", kind: "number", unit: "s", step: "any" },
      {
        name: "timeout",
        label: "Timeout",
        kind: "number",
        unit: "s",
        step: "any",
        when: (all) => runs(all.queue),
      },
    ],
    action: "Enqueue",
    act: async (values) => {
      const command = runs(values.queue);
      const item = {
        queue: values.queue,
        payload: command
          ? {
              command: values.command,
              ...(values.timeout && { timeout: Number(values.timeout) }),
            }
          : JSON.parse(values.payload),
      };
      if (values.id) item.transactionId = values.id;
      if (values.priority) item.priority = Number(values.priority);
      if (values.delaySeconds) item.delaySeconds = Number(values.delaySeconds);
      if (!queues.some((one) => one.name === values.queue))
        await post("configure", { queue: values.queue, kind: "work", options: {} });
      const [answer] = await post(command ? "jobs" : "push", { items: [item] });
      return { ...answer, kind: "work" };
    },
  });
  if (!made) return;
  notice(
    made.status === "duplicate" ? "That job was there already." : `Enqueued: ${made.message_id}.`,
  );
  openPushed(made);
}
