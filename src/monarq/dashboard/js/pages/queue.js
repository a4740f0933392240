/* One queue: how it flows, its partitions, its groups and its options. */

import { ApiError, get, path } from "../api.js";
import { notice } from "../dialog.js";
import { h } from "../dom.js";
import { flowCharts } from "../flow_charts.js";
import { count, duration, rate, short } from "../format.js";
import { groupTable } from "../group_table.js";
import { button, choice, empty, moment, panel, queueLink, stat, state, tabs } from "../parts.js";
import { openPushed, pushByHand } from "../push_form.js";
import { clear, destroy, pause, resume } from "../queue_acts.js";
import { optionsEditor } from "../queue_options.js";
import { partitionsView } from "../queue_partitions.js";
import { go, link } from "../router.js";
import { RANGES } from "../series.js";
import { statesBar } from "../states.js";

const RELOAD_MS = 15_000;

export function open(ctx) {
  const [queue] = ctx.parts;
  const tab = ctx.query.tab ?? "flow";
  let detail = null;
  let series = null;
  let measure = "messages";
  let gone = false;
  let range = RANGES.some(([key]) => key === ctx.query.range) ? ctx.query.range : "1h";
  const editor = optionsEditor(queue, ctx);
  const partitions = partitionsView(queue, ctx);

  async function load() {
    const [answer, figures] = await Promise.all([
      get(path`dashboard/queues/${queue}`),
      tab === "flow" ? get("dashboard/series", { range, queue }) : null,
      tab === "partitions" ? partitions.load() : null,
    ]);
    // An event may be newer than an answer that comes after it.
    const older = detail && answer.at < detail.at;
    detail = older
      ? { ...answer, at: detail.at, line: detail.line, groups: detail.groups }
      : answer;
    series = figures;
    gone = false;
    editor.take(detail);
  }

  const timer = setInterval(() => document.hidden || ctx.reload(), RELOAD_MS);
  const act = (action) => async () => {
    try {
      if ((await action(queue)) !== false) await ctx.reload();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      notice(error.message, { bad: true });
    }
  };

  return {
    title: queue,
    crumbs: [["Queues", link(["queues"])]],
    topics: {
      queue: (data) => {
        gone = Boolean(data.gone);
        if (!detail || data.at < detail.at) return;
        const { at = detail.at, line = detail.line, groups = detail.groups } = data;
        detail = { ...detail, at, line, groups };
      },
    },
    follow: () => ({ queue }),
    load,
    leave: () => clearInterval(timer),
    actions() {
      const { line } = detail;
      return [
        state(line.paused ? "paused" : line.kind),
        ctx.can("write") &&
          button(
            "Push",
            async () => {
              const pushed = await pushByHand(line);
              if (pushed) openPushed(pushed);
            },
            { main: true },
          ),
        ctx.can("admin") &&
          (line.paused ? button("Resume", act(resume)) : button("Pause", act(pause))),
        ctx.can("admin") && button("Clear", act(clear), { danger: true }),
        ctx.can("admin") &&
          button(
            "Delete",
            async () => {
              try {
                if (await destroy(queue)) go(["queues"]);
              } catch (error) {
                notice(error.message, { bad: true });
              }
            },
            { danger: true },
          ),
      ];
    },
    render() {
      if (gone)
        return empty("This queue was deleted.", "Somebody deleted it while you looked at it.");
      const { line } = detail;
      const views = [["flow", "Flow"]];
      if (line.kind === "ordered") views.push(["partitions", "Partitions", line.partitions]);
      views.push(["options", "Options"]);
      return [
        figures(line),
        h(
          "div.toolbar",
          null,
          tabs("Views of the queue", views, tab, (key) => link(["queues", queue], { tab: key })),
          h(
            "div.toolbar-end",
            null,
            h(
              "a",
              {
                href:
                  line.kind === "work" ? link(["jobs"], { queue }) : link(["messages"], { queue }),
              },
              line.kind === "work" ? "Items and jobs →" : "Browse messages →",
            ),
          ),
        ),
        tab === "flow" && flow(),
        tab === "partitions" && partitions.render(detail),
        tab === "options" && [editor.render(), about()],
      ];
    },
  };

  function flow() {
    return [
      detail.line.kind === "work" &&
        panel("Items by state", {}, statesBar(detail.line.states, queue)),
      detail.line.kind === "ordered" &&
        panel(
          "Groups",
          { note: detail.groups.length ? null : "none yet" },
          detail.groups.length
            ? groupTable("groups", detail.groups, { withQueue: false })
            : empty(
                "Nobody consumes this queue.",
                "A group is made by its first pop.",
                `monarq pop ${quoted(queue)} --group billing`,
              ),
        ),
      series &&
        h(
          "div.toolbar",
          null,
          h("h2", null, "Over time"),
          h(
            "div.toolbar-end",
            null,
            choice("Range", RANGES, range, (value) => {
              range = value;
              ctx.amend({ range });
              ctx.reload();
            }),
          ),
        ),
      series &&
        flowCharts(series, {
          measure,
          onmeasure: (value) => {
            measure = value;
            ctx.redraw();
          },
        }),
    ];
  }

  function about() {
    const { line, createdAt, deadQueueOf } = detail;
    return panel(
      "About",
      {},
      h(
        "p",
        null,
        "Made ",
        moment(createdAt),
        line.namespace && [" · namespace ", h("b.name", { dir: "auto" }, line.namespace)],
        line.task && [" · task ", h("b.name", { dir: "auto" }, line.task)],
        deadQueueOf.length > 0 && [
          " · dead queue of ",
          deadQueueOf.map((one) => [queueLink(one), " "]),
        ],
      ),
    );
  }

  function figures(line) {
    return h(
      "section.stats",
      { "aria-label": "Now" },
      stat("Pending", count(line.pending), {
        note: line.maxSize ? `of at most ${short(line.maxSize)}` : null,
      }),
      stat("In", rate(line.in), { unit: "/s", note: `${short(line.pushed)} ever` }),
      stat("Out", rate(line.out), { unit: "/s", note: `${short(line.completed)} ever` }),
      line.kind === "ordered" &&
        stat("Lag", duration(line.lagSeconds), {
          tone: line.lagSeconds > 300 ? "warn" : "",
          note: line.slowestGroup ? "of the slowest group" : "no group yet",
        }),
      stat("Failing", rate(line.failing), { unit: "/s", tone: line.failing ? "warn" : "" }),
      stat("Dead letters", count(line.deadLetters), {
        tone: line.deadLetters ? "bad" : "",
        href: link(["dead-letters"], { queue }),
      }),
      stat("Stored", short(line.stored), {}),
    );
  }
}

const quoted = (text) => (/^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
