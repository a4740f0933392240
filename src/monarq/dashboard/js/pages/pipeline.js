/* Pipeline: how far the archive has come, what the last analysis found, what ran and failed. */

import { address, get, path } from "../api.js";
import { meter } from "../chart.js";
import { h } from "../dom.js";
import { count, duration, exact, percent, plural } from "../format.js";
import {
  commandLine,
  empty,
  moment,
  name,
  panel,
  plainTable,
  queueLink,
  select,
  sentence,
  state,
  when,
} from "../parts.js";

const SEVERITY = { serious: "critical", notable: "warning", minor: "notice" };

export function open(ctx) {
  let runs = [];
  let archives = [];
  let analyses = [];
  let chosen = ctx.query.analysis ?? null;

  async function load() {
    const [a, b, c] = await Promise.all([
      get("pipeline/runs", { limit: 100 }),
      get("pipeline/archives"),
      get("pipeline/analyses"),
    ]);
    runs = a.runs;
    archives = b.archives;
    analyses = c.analyses;
    if (!analyses.some((one) => one.id === chosen)) chosen = analyses[0]?.id ?? null;
  }

  return {
    title: "Pipeline",
    topics: { pipeline: () => ctx.reload() },
    load,
    render() {
      if (!runs.length && !archives.length && !analyses.length) return nothing();
      return [
        archives.map(archive),
        analyses.length > 0 ? analysis() : hint(),
        runs.length > 0 && history(),
      ];
    },
  };

  function archive(one) {
    return panel(
      "Archive",
      { note: ["in ", h("code", null, one.lake), ", ", when(one.at)] },
      plainTable(
        "Archived queues",
        [["Queue"], ["Archived"], ["Messages", "num"], ["Behind", "num"], ["Last"]],
        one.queues.map((row) => {
          const part = row.rows + row.behind ? row.rows / (row.rows + row.behind) : 1;
          return h(
            "tr",
            { key: row.queue },
            h("td", null, queueLink(row.queue)),
            h(
              "td",
              null,
              h(
                "div.archived",
                null,
                meter(part, { tone: row.behind ? "out" : "ok" }),
                h("span.faint.small.nowrap", null, percent(Math.floor(part * 1000) / 1000)),
              ),
            ),
            h("td.num", null, count(row.rows)),
            h("td.num", null, count(row.behind)),
            h("td", null, when(row.archivedAt)),
          );
        }),
      ),
    );
  }

  function hint() {
    return panel(
      "Analysis",
      { note: "none yet" },
      h(
        "p.soft",
        null,
        "An analysis reads the archive and says in words and plots what happened: throughput, waiting, failures, skew.",
      ),
      commandLine("monarq pipeline analyse ./lake"),
    );
  }

  function analysis() {
    const { findings } = analyses.find((one) => one.id === chosen);
    // Whoever may write may put records: only what can be shown is.
    const found = findings.filter((one) => typeof one?.text === "string");
    const report = address(path`pipeline/analyses/${chosen}/report`).href;
    return panel(
      "Analysis",
      {
        actions: [
          analyses.length > 1 &&
            select(
              "Run",
              analyses.map((one) => [one.id, exact(Date.parse(one.at)).slice(0, 16)]),
              chosen,
              (value) => {
                chosen = value;
                ctx.amend({ analysis: value });
                ctx.reload();
              },
            ),
          h(
            "a.button.button-small",
            { href: report, target: "_blank", rel: "noopener" },
            "Open the report",
          ),
        ],
      },
      found.length > 0 &&
        h(
          "ol.attention",
          { "aria-label": "Findings" },
          found
            .slice(0, 12)
            .map((one, index) =>
              h(
                "li.attention-item",
                { key: index, class: `attention-${SEVERITY[one.severity] ?? "notice"}` },
                h("span.attention-mark", { "aria-hidden": "true" }),
                h("p.attention-text", null, sentence(one.text)),
              ),
            ),
        ),
      // Without permissions: the report has no script, and gets no origin.
      h("iframe.report", {
        key: chosen,
        src: report,
        sandbox: "",
        title: "Report of the analysis",
        loading: "lazy",
      }),
    );
  }

  function history() {
    return panel(
      "Runs",
      { note: plural(runs.length, "run") },
      plainTable(
        "Runs",
        [
          ["Pipeline"],
          ["Outcome"],
          ["Started"],
          ["Took"],
          ["Rows", "num"],
          ["Queues"],
          ["Host"],
        ],
        runs.map((run) =>
          h(
            "tr",
            { key: run.id },
            h("td", null, h("b", null, run.pipeline)),
            h(
              "td",
              null,
              state(run.outcome === "failed" ? "dead" : run.outcome, run.outcome),
              run.error && h("div.bad.small.name", { dir: "auto" }, run.error),
            ),
            h("td", null, moment(run.startedAt)),
            h(
              "td",
              null,
              duration(
                (Date.parse(run.endedAt ?? run.updatedAt) - Date.parse(run.startedAt)) / 1000,
              ),
            ),
            h("td.num", null, count(run.rows)),
            h(
              "td",
              null,
              run.queues.length
                ? run.queues.map((one) => [queueLink(one), " "])
                : h("span.faint", null, "all"),
            ),
            h("td", null, name(run.host)),
          ),
        ),
      ),
    );
  }

  function nothing() {
    return h(
      "section.panel",
      { "aria-label": "No pipeline" },
      empty(
        "No pipeline has run yet.",
        "Spark pipelines archive everything that passes through into a lake of Parquet files, analyse it and replay it. Start with an archive; then analyse it.",
        "monarq pipeline archive ./lake --once",
        "monarq pipeline analyse ./lake",
      ),
    );
  }
}
