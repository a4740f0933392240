/* Jobs and workers: what waits, runs and failed, who runs it, and what comes on a schedule. */

import { get } from "../api.js";
import { schedulesView, workersView } from "../crew.js";
import { h } from "../dom.js";
import { enqueue } from "../enqueue_form.js";
import { clipped, count } from "../format.js";
import { itemState, what } from "../job_words.js";
import {
  button,
  empty,
  name,
  panel,
  search,
  select,
  state,
  tabs,
  when,
} from "../parts.js";
import { link } from "../router.js";
import { STATES, statesBar } from "../states.js";
import { table } from "../table.js";
import { later } from "../timing.js";

const RELOAD_MS = 5_000;
const PAGE = 200;

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
      get("dashboard/queues", { kind: "work", limit: 1000, sort: "pending", order: "desc" }),
      get("dashboard/workers"),
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
    actions: () =>
      ctx.can("write") &&
      button("Enqueue a job", () => enqueue(ctx, queues, queue), { main: true, small: false }),
    render: () => [
      tabs(
        "Views",
        [
          ["jobs", "Jobs"],
          ["workers", "Workers", running().length],
          ["schedules", "Schedules", crew.schedules.length],
        ],
        tab,
        (key) => link(["jobs"], { tab: key }),
      ),
      tab === "jobs" && jobs(),
      tab === "workers" && workersView(ctx, crew),
      tab === "schedules" && schedulesView(crew),
    ],
  };

  function running() {
    return crew.workers.filter((one) => one.state !== "stopped");
  }

  function jobs() {
    const line = queues.find((one) => one.name === queue);
    if (!line) {
      return h(
        "section.panel",
        { "aria-label": "No jobs" },
        empty(
          "There is no work queue yet.",
          "Enqueue a command; a worker runs it.",
          "monarq enqueue 'echo hello'",
        ),
      );
    }
    return [
      h(
        "div.toolbar",
        null,
        select(
          "Queue",
          queues.map((one) => [one.name, `${clipped(one.name, 40)} (${count(one.pending)} open)`]),
          queue,
          (value) => {
            queue = value;
            apply();
          },
        ),
        select(
          "State",
          [["", "any"], ...STATES.map(([key, label]) => [key, label])],
          wanted,
          (value) => {
            wanted = value;
            apply();
          },
        ),
        search(
          "Search in command, id, error or consumer",
          find,
          (value) => {
            find = value;
            apply();
          },
          { placeholder: "Search command, id, error" },
        ),
        h(
          "div.toolbar-end.small",
          null,
          line.paused && [state("paused"), " "],
          h("a", { href: link(["queues", queue]) }, "Open the queue →"),
        ),
      ),
      panel("Items by state", {}, statesBar(line.states, queue)),
      found.items.length
        ? table("items", {
            label: "Jobs",
            rows: found.items,
            id: (row) => row.id,
            href: (row) => link(["jobs", row.id]),
            columns: columns(),
            view,
            tone: (row) => (row.state === "dead" ? "row-bad" : ""),
          })
        : empty(
            "No job matches.",
            find || wanted ? "Try another state or a shorter text." : "The queue is empty.",
            `monarq enqueue --queue ${queue} 'echo hello'`,
          ),
      found.truncated && h("p.faint.small", null, "The newest 20,000 were looked at."),
    ];
  }

  function columns() {
    return [
      {
        key: "what",
        label: "Job",
        cell: (row) => h("span.mono.small", { dir: "auto", title: what(row) }, what(row)),
      },
      { key: "state", label: "State", width: "112px", cell: itemState },
      {
        key: "id",
        label: "Id",
        width: "150px",
        hide: 1,
        cell: (row) => h("span.mono.small", { dir: "auto" }, row.transactionId),
      },
      {
        key: "attempts",
        label: "Tries",
        num: true,
        width: "76px",
        cell: (row) => `${row.attempts} / ${row.maxAttempts}`,
      },
      {
        key: "priority",
        label: "Priority",
        num: true,
        width: "80px",
        hide: 2,
        cell: (row) => count(row.priority),
      },
      {
        key: "error",
        label: "Error or worker",
        width: "22%",
        hide: 2,
        cell: (row) =>
          row.error
            ? h("span.bad.small", { dir: "auto", title: row.error.slice(0, 2000) }, row.error)
            : row.consumer
              ? name(row.consumer)
              : "",
      },
      {
        key: "time",
        label: "When",
        width: "120px",
        hide: 1,
        cell: (row) =>
          row.state === "scheduled" && row.runAt
            ? when(row.runAt)
            : when(row.finishedAt ?? row.createdAt),
      },
    ];
  }
}
