/* All queues: search, sort, see which is deep, slow or failing. */

import { get, post } from "../api.js";
import { meter } from "../chart.js";
import { form, notice } from "../dialog.js";
import { h } from "../dom.js";
import { refiltering } from "../filtering.js";
import { count, duration, plural, rate } from "../format.js";
import { button, empty, figure, name, perSecond, search, select, state } from "../parts.js";
import { go, link } from "../router.js";
import { table, turned } from "../table.js";
import { Windowed } from "../windowed.js";

const KINDS = [
  ["", "all kinds"],
  ["ordered", "ordered"],
  ["work", "work"],
];

export function open(ctx) {
  const filter = {
    search: ctx.query.search ?? "",
    kind: ctx.query.kind ?? "",
    namespace: ctx.query.namespace ?? "",
    paused: ctx.query.paused ?? "",
  };
  let sort = {
    key: ctx.query.sort ?? "name",
    order: ctx.query.order ?? (ctx.query.sort ? "desc" : "asc"),
  };
  let known; // How many queues there are, whatever the filter.
  const list = new Windowed(
    async (offset, limit) => {
      const answer = await get("dashboard/queues", {
        ...filter,
        sort: sort.key,
        order: sort.order,
        offset,
        limit,
      });
      return { rows: answer.queues, total: answer.total, at: answer.at };
    },
    ctx.redraw,
    (row) => row.name,
  );

  const apply = refiltering(
    ctx,
    () => ({ ...filter, sort: sort.key, order: sort.order }),
    () => list.reset(),
  );
  const set = (key) => (value) => {
    filter[key] = value;
    apply();
  };

  return {
    title: "Queues",
    topics: {
      queues: (data) => {
        list.merge(data.changed, data.at);
        const before = filtered(filter) ? known : list.total;
        known = data.total;
        if (data.more || data.gone?.length || (before !== undefined && known !== before))
          ctx.reload();
      },
    },
    load: () => list.reload(),
    actions: () =>
      ctx.can("write") && button("New queue", () => create(), { small: false, main: true }),
    render() {
      if (!list.total && !filtered(filter)) return nothing();
      return [
        h(
          "div.toolbar",
          null,
          search("Search queues", filter.search, set("search")),
          select("Kind", KINDS, filter.kind, set("kind")),
          select(
            "Show",
            [
              ["", "all"],
              ["true", "paused only"],
            ],
            filter.paused,
            set("paused"),
          ),
          h(
            "div.toolbar-end.faint.small",
            { "aria-live": "polite" },
            plural(list.total ?? 0, "queue"),
          ),
        ),
        list.total
          ? table("queues", {
              label: "Queues",
              columns: columns(list.rows),
              rows: list.rows,
              total: list.total,
              need: list.need,
              id: (row) => row.name,
              href: (row) => link(["queues", row.name]),
              sort,
              view: list.version,
              tone: (row) =>
                row.deadLetters && row.failing
                  ? "row-bad"
                  : row.lagSeconds > 300 || row.paused
                    ? "row-warn"
                    : "",
              onsort: (key) => {
                sort = turned(sort, key, key === "name" ? "asc" : "desc");
                apply();
                ctx.redraw();
              },
            })
          : empty("No queue matches.", "Try a shorter part of its name, or another kind."),
      ];
    },
  };
}

const filtered = (filter) => Object.values(filter).some(Boolean);

function columns(rows) {
  const most = Math.max(1, ...rows.filter(Boolean).map((row) => row.pending));
  return [
    { key: "name", label: "Queue", sort: "name", cell: (row) => name(row.name) },
    {
      key: "kind",
      label: "Kind",
      width: "190px",
      hide: 1,
      cell: (row) => h("span", null, state(row.kind), row.paused && [" ", state("paused")]),
    },
    {
      key: "pending",
      label: "Pending",
      sort: "pending",
      num: true,
      width: "92px",
      cell: (row) => figure(count(row.pending)),
    },
    {
      key: "bar",
      label: "",
      width: "72px",
      hide: 1,
      head: h("span.hidden-text", null, "Depth"),
      cell: (row) => meter(row.pending / most, { tone: row.lagSeconds > 300 ? "lag" : "in" }),
    },
    {
      key: "lag",
      label: "Lag",
      sort: "lagSeconds",
      num: true,
      width: "84px",
      cell: (row) => (row.lagSeconds ? duration(row.lagSeconds) : h("span.faint", null, "–")),
    },
    {
      key: "in",
      label: "In",
      sort: "in",
      num: true,
      width: "82px",
      hide: 1,
      cell: (row) => perSecond(row.in),
    },
    {
      key: "out",
      label: "Out",
      sort: "out",
      num: true,
      width: "82px",
      hide: 1,
      cell: (row) => perSecond(row.out),
    },
    {
      key: "failing",
      label: "Failing",
      num: true,
      width: "84px",
      hide: 2,
      cell: (row) =>
        row.failing ? h("span.warn", null, perSecond(row.failing)) : h("span.faint", null, rate(0)),
    },
    {
      key: "dead",
      label: "Dead letters",
      sort: "deadLetters",
      num: true,
      width: "112px",
      hide: 1,
      cell: (row) =>
        row.deadLetters ? h("span.bad", null, count(row.deadLetters)) : h("span.faint", null, "0"),
    },
    {
      key: "stored",
      label: "Stored",
      sort: "stored",
      num: true,
      width: "96px",
      hide: 3,
      cell: (row) => count(row.stored),
    },
    {
      key: "partitions",
      label: "Partitions",
      sort: "partitions",
      num: true,
      width: "100px",
      hide: 2,
      cell: (row) => count(row.partitions),
    },
  ];
}

function nothing() {
  return h(
    "section.panel",
    { "aria-label": "No queues" },
    empty(
      "There is no queue yet.",
      "A queue is made by the first push to it.",
      "monarq push orders '{\"total\": 12.5}'",
    ),
  );
}

async function create() {
  const made = await form({
    title: "New queue",
    fields: [
      { name: "queue", label: "Name", required: true },
      {
        name: "kind",
        label: "Kind",
        kind: "choice",
        value: "ordered",
        options: [
          ["ordered", "ordered: partitions in order, consumer groups"],
          ["work", "work: items one by one, by priority"],
          ["commands", "work: shell commands for workers to run"],
        ],
      },
      {
        name: "namespace",
        label: "Namespace",
        hint: "A label, to pop across queues. May be left empty.",
      },
    ],
    action: "Create queue",
    act: async ({ queue, kind, namespace }) => {
      await post("configure", {
        queue,
        kind: kind === "commands" ? "work" : kind,
        ...(namespace && { namespace }),
        options: kind === "commands" ? { runsCommands: true } : {},
      });
      return queue;
    },
  });
  if (made) {
    notice(`Queue ${made} is there.`);
    go(["queues", made]);
  }
}
