/* Overview: is it well, how does it flow, and what needs somebody. */

import { ApiError, get } from "../api.js";
import { meter } from "../chart.js";
import { h } from "../dom.js";
import { flowCharts } from "../flow_charts.js";
import { bytes, count, duration, plural, rate, short } from "../format.js";
import {
  button,
  choice,
  empty,
  figure,
  panel,
  perSecond,
  queueLink,
  sentence,
  stat,
  when,
} from "../parts.js";
import { link } from "../router.js";
import { RANGES } from "../series.js";

const RELOAD_MS = 15_000;

export function open(ctx) {
  let range = RANGES.some(([key]) => key === ctx.query.range) ? ctx.query.range : "15m";
  let series = null;
  let measure = "time";
  let busiest = [];
  let all = false;

  async function loadFigures() {
    const [figures, queues] = await Promise.all([
      get("dashboard/series", { range }),
      get("dashboard/queues", { sort: "pending", order: "desc", limit: 8 }),
    ]);
    series = figures;
    busiest = queues.queues;
  }

  // At first, what needs attention is shown without waiting for the pictures.
  async function load() {
    if (series) return loadFigures();
    const figures = loadFigures().then(ctx.redraw, (error) => {
      if (!(error instanceof ApiError)) throw error;
    });
    return ctx.overview() ? figures : ctx.loadOverview();
  }

  const timer = setInterval(() => document.hidden || ctx.reload(), RELOAD_MS);

  const chooseRange = (value) => {
    range = value;
    ctx.amend({ range });
    ctx.reload();
  };

  return {
    title: "Overview",
    topics: {
      queues: (data) => {
        const fresh = new Map(data.changed.map((one) => [one.name, one]));
        busiest = busiest.map((one) => fresh.get(one.name) ?? one);
      },
    },
    load,
    leave: () => clearInterval(timer),
    render() {
      const overview = ctx.overview();
      if (!overview) return h("p.loading", { role: "status" }, "Loading…");
      if (!overview.totals.queues)
        return [health(overview), attention(overview, all, null), welcome()];
      return [
        health(overview),
        attention(overview, all, () => {
          all = true;
          ctx.redraw();
        }),
        figures(overview),
        h(
          "div.toolbar",
          null,
          h("h2", null, "Over time"),
          h("div.toolbar-end", null, choice("Range", RANGES, range, chooseRange)),
        ),
        series &&
          flowCharts(series, {
            measure,
            onmeasure: (value) => {
              measure = value;
              ctx.redraw();
            },
          }),
        busiest.length > 0 && depth(busiest),
      ];
    },
  };
}

function welcome() {
  return h(
    "section.panel",
    { "aria-label": "First steps" },
    empty(
      "There is no queue yet.",
      "Push a message and a queue is there, or enqueue a command for a worker to run.",
      "monarq push orders '{\"total\": 12.5}' --partition customer-7",
      "monarq enqueue 'echo hello'",
    ),
  );
}

function health({ health: state, workers, totals }) {
  const { store, buffer, peers } = state;
  const waiting = buffer.records ? `${plural(buffer.records, "push", "pushes")} in files` : "empty";
  const lost = workers.lost ? `${workers.lost} lost` : null;
  return h(
    "section.health",
    { "aria-label": "Health" },
    cell(
      "Broker",
      { healthy: "ok", degraded: "warn" }[state.status] ?? "bad",
      state.status,
      `up ${duration(state.uptimeSeconds)}`,
      link(["system"]),
    ),
    cell(
      "Store",
      store.ok ? "ok" : "bad",
      store.ok ? { sqlite: "SQLite", postgresql: "PostgreSQL" }[store.kind] : "down",
      store.ok ? bytes(store.bytes) : store.error,
      link(["system"]),
    ),
    cell(
      "Buffer",
      !buffer.healthy
        ? "bad"
        : buffer.records || buffer.route !== "direct"
          ? "warn"
          : buffer.enabled
            ? "ok"
            : "quiet",
      buffer.enabled ? (buffer.healthy ? waiting : "needs a look") : "off",
      buffer.setAside.length
        ? `${plural(buffer.setAside.length, "file")} set aside`
        : `pushes go ${{ direct: "to the store", buffer: "to files", hold: "on hold" }[buffer.route] ?? buffer.route}`,
      link(["system"]),
    ),
    cell(
      "Peers",
      peers === null ? "quiet" : "ok",
      peers === null ? "none set" : plural(peers.peers ?? 0, "peer"),
      `${plural(state.parked, "pop")} waiting`,
      link(["system"]),
    ),
    cell(
      "Workers",
      workers.lost ? "bad" : workers.running ? "ok" : totals.ready ? "warn" : "quiet",
      workers.running ? `${workers.running} running` : "none running",
      lost ?? `${plural(workers.jobs, "job")} under way`,
      link(["jobs"], { tab: "workers" }),
    ),
  );
}

function cell(label, tone, word, note, href) {
  return h(
    "a.health-cell",
    { href },
    h(`span.health-dot.health-${tone}`, { "aria-hidden": "true" }),
    h("span.health-name", null, label),
    h("span.health-word", null, word),
    h("span.faint.tiny", { style: { "grid-column": "2" } }, note),
  );
}

/** Where an entry leads, and the words on its button. */
export function target(one) {
  const { page, queue, group } = one;
  if (one.kind === "group_stuck")
    return ["Show the message", link(["groups", group, queue], { partition: one.partition })];
  if (page === "group" && group && queue) return ["Open the group", link(["groups", group, queue])];
  if (page === "message" && one.partitionId)
    return [
      "Open the message",
      link(["messages", one.partitionId, one.transactionId ?? `${one.partitionId}-${one.seq}`]),
    ];
  if (page === "queue" && queue) return ["Open the queue", link(["queues", queue])];
  if (page === "deadLetters") return ["Look inside", link(["dead-letters"], { queue, group })];
  if (page === "jobs") return ["Open the jobs", link(["jobs"], { queue })];
  if (page === "workers") return ["Open the workers", link(["jobs"], { tab: "workers" })];
  if (page === "pipeline") return ["Open the pipeline", link(["pipeline"])];
  return ["Open the system", link(["system"])];
}

function attention({ attention: found, totals }, all, showAll) {
  const shown = all ? found : found.slice(0, 6);
  return panel(
    "Needs attention",
    { note: found.length ? null : "nothing does" },
    found.length
      ? h(
          "ul.attention",
          null,
          shown.map((one) => {
            const [words, href] = target(one);
            return h(
              "li.attention-item",
              { key: one.id, class: `attention-${one.severity}` },
              h("span.attention-mark", { "aria-hidden": "true" }),
              h(
                "div",
                null,
                h(
                  "p.attention-text",
                  null,
                  h("span.hidden-text", null, `${one.severity}: `),
                  sentence(one.text),
                ),
                h(
                  "p.attention-hint",
                  null,
                  sentence(one.hint),
                  one.since && [" · since ", when(one.since)],
                ),
              ),
              h(
                "div.attention-buttons",
                null,
                h(
                  "a.button.button-small",
                  { href, class: one.severity === "critical" ? "button-main" : "" },
                  words,
                ),
              ),
            );
          }),
        )
      : h(
          "p.calm",
          null,
          h("span.health-dot.health-ok", { "aria-hidden": "true" }),
          totals.queues
            ? "Every group keeps up, nothing waits for a person."
            : "The broker runs and waits for its first message.",
        ),
    found.length > shown.length && showAll && button(`Show all ${found.length}`, showAll),
  );
}

function behind(lag) {
  if (lag.groupsBehind) return `${plural(lag.groupsBehind, "group")} behind`;
  return lag.messages ? `${short(lag.messages)} to go` : "nobody is behind";
}

function figures({ rates, lag, latency, totals }) {
  return h(
    "section.stats",
    { "aria-label": "Now" },
    stat("In", rate(rates.in), { unit: "/s", note: `${short(totals.pushed)} ever` }),
    stat("Out", rate(rates.out), { unit: "/s", note: `${short(totals.completed)} ever` }),
    stat("Pending", short(totals.pending), {
      note: plural(totals.queues, "queue"),
      href: link(["queues"], { sort: "pending" }),
    }),
    stat("Longest lag", duration(lag.seconds), {
      note: behind(lag),
      tone: lag.seconds > 300 ? "warn" : "",
      href: link(["groups"]),
    }),
    stat("End to end, p95", duration(latency.p95), {
      note: latency.samples ? `p50 ${duration(latency.p50)}` : "nothing completed lately",
    }),
    stat("Failing", rate(rates.failed), { unit: "/s", tone: rates.failed ? "warn" : "" }),
    stat("Dead letters", short(totals.deadLetters), {
      tone: totals.deadLetters ? "bad" : "",
      href: link(["dead-letters"]),
    }),
  );
}

function depth(queues) {
  const most = Math.max(1, ...queues.map((one) => one.pending));
  return panel(
    "Deepest queues",
    { actions: h("a", { href: link(["queues"]) }, "All queues") },
    h(
      "div.busy",
      { role: "table", "aria-label": "Deepest queues" },
      row("busy-head", "Queue", h("span.hidden-text", null, "share"), "Pending", "In / out"),
      queues.map((one) =>
        row(
          "",
          queueLink(one.name),
          meter(one.pending / most, { tone: one.lagSeconds > 300 ? "lag" : "in" }),
          figure(count(one.pending)),
          h(
            "span.nowrap",
            null,
            perSecond(one.in),
            h("span.faint", null, " / "),
            perSecond(one.out),
          ),
        ),
      ),
    ),
  );
}

function row(look, name, bar, pending, flow) {
  return h(
    "div",
    { role: "row", style: { display: "contents" } },
    [
      [name, ""],
      [bar, "busy-bar"],
      [pending, "num"],
      [flow, "num"],
    ].map(([inside, kind]) =>
      h(
        "span",
        { role: look ? "columnheader" : "cell", class: `${look} ${kind}`.trim() || null },
        inside,
      ),
    ),
  );
}
