/* The partitions of a queue: a heat map of all, and a table with who works on them. */

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { refiltering } from "./filtering.js";
import { count, duration, plural } from "./format.js";
import { heatMap } from "./heat_map.js";
import { PLACE } from "./partition_columns.js";
import { choice, empty, groupName, name, panel, search, select, when } from "./parts.js";
import { link } from "./router.js";
import { table, turned } from "./table.js";
import { Windowed } from "./windowed.js";

const BY = [
  ["lag", "behind"],
  ["age", "age"],
  ["attempts", "attempts"],
  ["stored", "stored"],
];
const WORST = { d: "drained", a: "available", l: "leased", r: "retrying", w: "delayed" };
const MANY = 12;
const NARROW = 640;

export function partitionsView(queue, ctx) {
  let group = ctx.query.group ?? "";
  let find = ctx.query.search ?? "";
  let by = ctx.query.by ?? "lag";
  let sort = { key: ctx.query.sort ?? "lag", order: ctx.query.order ?? "desc" };
  let heat = null;
  let answer = null;

  const list = new Windowed(async (offset, limit) => {
    answer = await get(path`dashboard/queues/${queue}/partitions`, {
      group,
      search: find,
      sort: sort.key,
      order: sort.order,
      offset,
      limit,
    });
    return { rows: answer.partitions, total: answer.total };
  }, ctx.redraw);

  const loadHeat = async () => {
    heat = await get(path`dashboard/queues/${queue}/heat`, {
      group,
      by,
      cells: innerWidth < NARROW ? 256 : 1024,
    });
  };

  const apply = refiltering(
    ctx,
    () => ({ group, search: find, by, sort: sort.key, order: sort.order }),
    () => Promise.all([list.reset(), loadHeat()]),
  );

  const amount = (value) =>
    by === "age"
      ? duration(value)
      : by === "attempts"
        ? plural(value, "attempt")
        : plural(value, "message");

  function map() {
    if (!heat || heat.partitions <= MANY) return null;
    const cells = heat.values.map((value, index) => ({
      value,
      mark: heat.states[index] === "r" ? "retrying" : null,
      label:
        heat.perCell > 1 ? `${heat.names[index]} and ${heat.perCell - 1} more` : heat.names[index],
      detail: `${amount(value)} · ${WORST[heat.states[index]] ?? ""}`,
      href: link(["queues", queue], { tab: "partitions", search: heat.names[index], group, by }),
    }));
    return panel(
      "Heat map",
      {
        note:
          heat.perCell > 1
            ? `a cell is ${heat.perCell} partitions, by the worst of them`
            : "a cell is a partition",
        actions: choice("Colour by", BY, by, (value) => {
          by = value;
          apply();
        }),
      },
      heatMap("heat", {
        cells,
        label: `Partitions of the queue by ${by}. Arrow keys go from cell to cell.`,
        hint: `Deepest: ${amount(heat.max)}. Red frames: a message there fails and is retried.`,
      }),
    );
  }

  const columns = () => [
    ...PLACE,
    {
      key: "consumer",
      label: "Lease holder",
      hide: 1,
      width: "190px",
      cell: (row) =>
        row.leaseUntil
          ? h(
              "span",
              null,
              name(row.consumer ?? "unnamed"),
              " ",
              h("span.faint.small", null, "until ", when(row.leaseUntil)),
            )
          : row.retryAt
            ? h("span.faint", null, "next try due ", when(row.retryAt))
            : h("span.faint", null, "–"),
    },
    {
      key: "stored",
      label: "Stored",
      sort: "stored",
      num: true,
      width: "96px",
      hide: 2,
      cell: (row) => count(row.stored),
    },
    {
      key: "range",
      label: "Seq",
      num: true,
      width: "150px",
      hide: 2,
      cell: (row) =>
        row.lastSeq < row.firstSeq
          ? h("span.faint", null, "none kept")
          : `${count(row.firstSeq)} – ${count(row.lastSeq)}`,
    },
    {
      key: "pushed",
      label: "Last push",
      width: "110px",
      hide: 2,
      cell: (row) => when(row.lastPushedAt),
    },
  ];

  return {
    load: () => Promise.all([list.reload(), loadHeat()]),
    render(detail) {
      const groups = [
        ["", "the slowest group"],
        ...detail.groups.map((one) => [one.name, groupName(one.name)]),
      ];
      return [
        map(),
        h(
          "div.toolbar",
          null,
          search("Search partitions", find, (value) => {
            find = value;
            apply();
          }),
          detail.groups.length > 0 &&
            select("As seen by", groups, group, (value) => {
              group = value;
              apply();
            }),
          h(
            "div.toolbar-end.faint.small",
            { "aria-live": "polite" },
            plural(list.total ?? 0, "partition"),
            answer?.truncated && " (the first 100,000 were looked at)",
          ),
        ),
        list.total
          ? table("partitions", {
              label: "Partitions",
              columns: columns(),
              rows: list.rows,
              total: list.total,
              need: list.need,
              view: list.version,
              id: (row) => row.partitionId,
              sort,
              href: (row) =>
                link(["messages"], {
                  queue,
                  partition: row.partition,
                  firstSeq: row.headSeq ?? "",
                  group: answer?.group ?? "",
                }),
              tone: (row) => (row.attempts ? "row-bad" : ""),
              onsort: (key) => {
                sort = turned(sort, key, key === "id" ? "asc" : "desc");
                apply();
              },
            })
          : empty(
              "No partition matches.",
              find
                ? "Try a shorter part of its name."
                : "A partition is made by the first push to it.",
            ),
      ];
    },
  };
}
