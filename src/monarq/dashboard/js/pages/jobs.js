/* Jobs and workers: what waits, runs and failed, who runs it, and what comes on a schedule. */

import { get, path, post } from "../api.js";
import { confirm, form, notice } from "../dialog.js";
import { h } from "../dom.js";
import { clipped, count, duration, parse, plural } from "../format.js";
import { button, empty, moment, name, now, panel, queueLink, search, select, state, tabs, when } from "../parts.js";
import { openPushed } from "../push_form.js";
import { link } from "../router.js";
import { STATES, statesBar } from "../states.js";
import { table } from "../table.js";
import { later } from "../timing.js";

const RELOAD_MS = 5_000;
const PAGE = 200;

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
  [...args.map((one) => JSON.stringify(one)), ...Object.entries(kwargs).map(([key, value]) => `${key}=${JSON.stringify(value)}`)].join(", ");

export const itemState = (item) => {
  if (item.state === "leased") return state("running");
  if (item.state === "scheduled" && item.attempts) return state("retrying");
  return state(item.state);
};

export function open(ctx) {
  const tab = ctx.query.tab ?? "jobs";
  let queue = ctx.query.queue ?? "";
  let wanted = ctx.query.state ?? "";
  let find = ctx.query.search ?? "";
  let queues = [];
  let found = { items: [], truncated: false };
  let crew = { workers: [], schedules: [] };
  let view = 0;

  async function load() {
    const [list, people] = await Promise.all([
      get("dashboard/queues", { kind: "work", limit: 1000, sort: "pending", order: "desc" }), get("dashboard/workers"),
    ]);
    queues = list.queues;
    crew = people;
    if (!queues.some((one) => one.name === queue)) queue = queues[0]?.name ?? "";
    if (tab === "jobs" && queue) {
      found = await get("dashboard/items", { queue, state: wanted, search: find, limit: PAGE });
    }
  }

  const apply = later(200, async () => {
    view += 1;
    ctx.amend({ queue, state: wanted, search: find });
    await ctx.reload();
  });
  const timer = setInterval(() => document.hidden || ctx.reload(), RELOAD_MS);

  return {
    title: "Jobs and workers",
    topics: {
      workers: (data) => {
        crew = { ...crew, workers: data.workers };
      },
      queues: (data) => {
        const known = new Map(data.changed.map((one) => [one.name, one]));
        queues = queues.map((one) => known.get(one.name) ?? one);
      },
    },
    load,
    leave: () => clearInterval(timer),
    actions: () => ctx.can("write") && button("Enqueue a job", () => enqueue(), { main: true, small: false }),
    render: () => [
      tabs("Views", [["jobs", "Jobs"], ["workers", "Workers", running().length], ["schedules", "Schedules", crew.schedules.length]], tab,
        (key) => link(["jobs"], { tab: key })),
      tab === "jobs" && jobs(),
      tab === "workers" && workers(),
      tab === "schedules" && schedules(),
    ],
  };

  function running() {
    return crew.workers.filter((one) => one.state !== "stopped");
  }

  function jobs() {
    const line = queues.find((one) => one.name === queue);
    if (!line) {
      return h("section.panel", { "aria-label": "No jobs" },
        empty("There is no work queue yet.", "Enqueue a command; a worker runs it.", "monarq enqueue 'echo hello'"));
    }
    return [
      h("div.toolbar", null,
        select("Queue", queues.map((one) => [one.name, `${clipped(one.name, 40)} (${count(one.pending)} open)`]), queue, (value) => {
          queue = value;
          apply();
        }),
        select("State", [["", "any"], ...STATES.map(([key, label]) => [key, label])], wanted, (value) => {
          wanted = value;
          apply();
        }),
        search("Search in command, id, error or consumer", find, (value) => {
          find = value;
          apply();
        }, { placeholder: "Search command, id, error" }),
        h("div.toolbar-end.small", null, queueLink(queue), line.paused && state("paused"))),
      panel("Items by state", {}, statesBar(line.states, queue)),
      found.items.length
        ? table("items", { label: "Jobs", rows: found.items, id: (row) => row.id, href: (row) => link(["jobs", row.id]), columns: columns(), view,
            tone: (row) => (row.state === "dead" ? "row-bad" : "") })
        : empty("No job matches.", find || wanted ? "Try another state or a shorter text." : "The queue is empty.", `monarq enqueue --queue ${queue} 'echo hello'`),
      found.truncated && h("p.faint.small", null, "The newest 20,000 were looked at."),
    ];
  }

  function columns() {
    return [
      { key: "what", label: "Job", cell: (row) => h("span.mono.small", { dir: "auto", title: what(row) }, what(row)) },
      { key: "state", label: "State", width: "112px", cell: itemState },
      { key: "id", label: "Id", width: "150px", hide: 1, cell: (row) => h("span.mono.small", { dir: "auto" }, row.transactionId) },
      { key: "attempts", label: "Tries", num: true, width: "76px", cell: (row) => `${row.attempts} / ${row.maxAttempts}` },
      { key: "priority", label: "Priority", num: true, width: "80px", hide: 2, cell: (row) => count(row.priority) },
      { key: "error", label: "Error or worker", width: "22%", hide: 2,
        cell: (row) => (row.error ? h("span.bad.small", { dir: "auto", title: row.error.slice(0, 2000) }, row.error) : row.consumer ? name(row.consumer) : "") },
      { key: "time", label: "When", width: "120px", hide: 1,
        cell: (row) => (row.state === "scheduled" && row.runAt ? when(row.runAt) : when(row.finishedAt ?? row.createdAt)) },
    ];
  }

  function workers() {
    if (!crew.workers.length) {
      return h("section.panel", { "aria-label": "No workers" }, empty("No worker has been seen.", "A worker runs the jobs of the queues it is given.", "monarq worker start"));
    }
    const order = { lost: 0, running: 1, stopping: 2, stopped: 3 };
    const all = crew.workers.toSorted((a, b) => order[a.state] - order[b.state] || a.id.localeCompare(b.id));
    return h("section.worker-list", { "aria-label": "Workers" }, all.map((one) =>
      h("article.worker", { key: one.id, class: one.state === "lost" ? "worker-lost" : "" },
        h("div.worker-head", null, h("h2.name", { dir: "auto" }, one.id), state(one.state),
          one.state === "running" && ctx.can("jobs") && h("span.toolbar-end", null, button("Stop", () => stop(one)))),
        h("p.soft.small", null, one.host, one.pid && `, process ${one.pid}`, " · up since ", when(one.startedAt), " · heartbeat ", when(one.heartbeatAt)),
        h("p.small", null, "Queues: ", one.queues.map((each) => [queueLink(each), " "]), ` · up to ${plural(one.concurrency, "job")} at once`),
        h("p.small", null, h("b", null, count(one.completed)), " completed, ", h("b", { class: one.failed ? "bad" : "" }, count(one.failed)), " failed"),
        one.running.length > 0 && h("ul.worker-jobs", null, one.running.map((job) => h("li", { key: job.id },
          state("running"), " ", h("a.mono", { href: link(["jobs", job.id]), dir: "auto" }, clipped(job.what, 80)), " ",
          h("span.faint", null, "for ", duration(Math.max(0, (now() - parse(job.startedAt)) / 1000)))))))));
  }

  function schedules() {
    if (!crew.schedules.length) {
      return h("section.panel", { "aria-label": "No schedules" },
        empty("There is no schedule.", "Tasks that name a cron expression are enqueued by the workers that know them, once a tick."));
    }
    return panel("Schedules", {}, h("div.plain-scroll", null, h("table.plain", null,
      h("thead", null, h("tr", null, ["Name", "Expression", "Time zone", "Last", "Next"].map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", null, crew.schedules.map((one) => h("tr", { key: one.name },
        h("td", null, name(one.name)), h("td.mono", null, one.expression), h("td", null, one.zone),
        h("td", null, when(one.lastTick)), h("td", null, one.nextTick ? moment(one.nextTick) : "–")))))));
  }

  async function stop(one) {
    const done = await confirm({
      title: `Stop ${one.id}?`,
      text: one.running.length ? `It takes no more jobs, finishes the ${plural(one.running.length, "job")} that it runs, and ends.` : "It takes no more jobs and ends. It runs nothing now.",
      action: "Stop the worker",
      danger: true,
      act: async () => {
        await post(path`dashboard/workers/${one.id}/stop`);
        notice(`${one.id} was told to stop.`);
      },
    });
    if (done) ctx.reload();
  }

  async function enqueue() {
    const line = queues.find((one) => one.name === queue);
    const commands = queues.filter((one) => one.runsCommands).map((one) => one.name);
    const runs = (name) => commands.includes(name);
    const made = await form({
      title: "Enqueue a job",
      wide: true,
      fields: [
        { name: "queue", label: "Queue", required: true, value: line?.name ?? "jobs", suggestions: queues.map((one) => one.name) },
        { name: "command", label: "Command", kind: "text", rows: 3, when: (all) => runs(all.queue),
          hint: "Run by /bin/sh on the worker's machine.", check: (value, all) => (runs(all.queue) && !value.trim() ? "Needed." : ctx.can("jobs") || !runs(all.queue) ? null : "Your role may not enqueue commands.") },
        { name: "payload", label: "Payload", kind: "text", rows: 5, value: '{"task": "module:function", "args": []}', when: (all) => !runs(all.queue),
          hint: "A task with its arguments, or any JSON value for consumers of your own.",
          check: (value) => {
            try {
              JSON.parse(value);
              return null;
            } catch (error) {
              return `Not JSON: ${error.message}`;
            }
          } },
        { name: "id", label: "Id", hint: "May be left empty. The same id again is a duplicate." },
        { name: "priority", label: "Priority", kind: "number" },
        { name: "delaySeconds", label: "Delay", kind: "number", unit: "s", step: "any" },
        { name: "timeout", label: "Timeout", kind: "number", unit: "s", step: "any", when: (all) => runs(all.queue) },
      ],
      action: "Enqueue",
      act: async (values) => {
        const command = runs(values.queue);
        const item = { queue: values.queue, payload: command ? { command: values.command, ...(values.timeout && { timeout: Number(values.timeout) }) } : JSON.parse(values.payload) };
        if (values.id) item.transactionId = values.id;
        if (values.priority) item.priority = Number(values.priority);
        if (values.delaySeconds) item.delaySeconds = Number(values.delaySeconds);
        if (!queues.some((one) => one.name === values.queue)) await post("configure", { queue: values.queue, kind: "work", options: {} });
        const [answer] = await post(command ? "jobs" : "push", { items: [item] });
        return { ...answer, kind: "work" };
      },
    });
    if (!made) return;
    notice(made.status === "duplicate" ? "That job was there already." : `Enqueued: ${made.message_id}.`);
    openPushed(made);
  }
}

