/* Workers and schedules. */

import { path, post } from "./api.js";
import { confirm, notice } from "./dialog.js";
import { h } from "./dom.js";
import { clipped, count, duration, parse, plural } from "./format.js";
import {
  button,
  empty,
  moment,
  name,
  now,
  panel,
  plainTable,
  queueLink,
  state,
  when,
} from "./parts.js";
import { link } from "./router.js";

/** Workers with what they run and when they were last heard of. */
export function workersView(ctx, crew) {
  if (!crew.workers.length) {
    return h(
      "section.panel",
      { "aria-label": "No workers" },
      empty(
        "No worker has been seen.",
        "A worker runs the jobs of the queues it is given.",
        "monarq worker start",
      ),
    );
  }
  const order = { lost: 0, running: 1, stopping: 2, stopped: 3 };
  const all = crew.workers.toSorted(
    (a, b) => order[a.state] - order[b.state] || a.id.localeCompare(b.id),
  );
  return h(
    "section.worker-list",
    { "aria-label": "Workers" },
    all.map((one) =>
      h(
        "article.worker",
        { key: one.id, class: one.state === "lost" ? "worker-lost" : "" },
        h(
          "div.worker-head",
          null,
          h("h2.name", { dir: "auto" }, one.id),
          state(one.state),
          one.state === "running" &&
            ctx.can("jobs") &&
            h(
              "span.toolbar-end",
              null,
              button("Stop", () => stop(ctx, one)),
            ),
        ),
        h(
          "p.soft.small",
          null,
          one.host,
          one.pid && `, process ${one.pid}`,
          " · up since ",
          when(one.startedAt),
          " · heartbeat ",
          when(one.heartbeatAt),
        ),
        h(
          "p.small",
          null,
          "Queues: ",
          one.queues.map((each) => [queueLink(each), " "]),
          ` · up to ${plural(one.concurrency, "job")} at once`,
        ),
        h(
          "p.small",
          null,
          h("b", null, count(one.completed)),
          " completed, ",
          h("b", { class: one.failed ? "bad" : "" }, count(one.failed)),
          " failed",
        ),
        one.running.length > 0 &&
          h(
            "ul.worker-jobs",
            null,
            one.running.map((job) =>
              h(
                "li",
                { key: job.id },
                state("running"),
                " ",
                h("a.mono", { href: link(["jobs", job.id]), dir: "auto" }, clipped(job.what, 80)),
                " ",
                h(
                  "span.faint",
                  null,
                  "for ",
                  duration(Math.max(0, (now() - parse(job.startedAt)) / 1000)),
                ),
              ),
            ),
          ),
      ),
    ),
  );
}

/** What is enqueued at certain times. */
export function schedulesView(crew) {
  if (!crew.schedules.length) {
    return h(
      "section.panel",
      { "aria-label": "No schedules" },
      empty(
        "There is no schedule.",
        "Tasks that name a cron expression are enqueued by the workers that know them, once a tick.",
      ),
    );
  }
  return panel(
    "Schedules",
    {},
    plainTable(
      "Schedules",
      [["Name"], ["Expression"], ["Time zone"], ["Last"], ["Next"]],
      crew.schedules.map((one) =>
        h(
          "tr",
          { key: one.name },
          h("td", null, name(one.name)),
          h("td.mono", null, one.expression),
          h("td", null, one.zone),
          h("td", null, when(one.lastTick)),
          h("td", null, one.nextTick ? moment(one.nextTick) : "–"),
        ),
      ),
    ),
  );
}

async function stop(ctx, one) {
  const done = await confirm({
    title: `Stop ${one.id}?`,
    text: one.running.length
      ? `It takes no more jobs, finishes the ${plural(one.running.length, "job")} that it runs, and ends.`
      : "It takes no more jobs and ends. It runs nothing now.",
    action: "Stop the worker",
    danger: true,
    act: async () => {
      await post(path`dashboard/workers/${one.id}/stop`);
      notice(`${one.id} was told to stop.`);
    },
  });
  if (done) ctx.reload();
}
