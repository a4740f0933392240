/* Groups as rows: how far behind, how fast, in what state. */

import { count, duration } from "./format.js";
import { h } from "./dom.js";
import { groupName, name, perSecond, state } from "./parts.js";
import { link } from "./router.js";
import { table } from "./table.js";

/** `more`: further properties of the table, such as its sort. */
export function groupTable(key, rows, { withQueue = true, ...more } = {}) {
  const columns = [
    { key: "name", label: "Group", sort: "name", cell: (row) => name(groupName(row.name)) },
    withQueue && { key: "queue", label: "Queue", sort: "queue", cell: (row) => name(row.queue) },
    { key: "state", label: "State", width: "108px", cell: (row) => state(row.state) },
    {
      key: "lag",
      label: "Behind",
      sort: "lag",
      num: true,
      width: "96px",
      cell: (row) => (row.lag ? count(row.lag) : h("span.faint", null, "0")),
    },
    {
      key: "lagSeconds",
      label: "Time behind",
      sort: "lagSeconds",
      num: true,
      width: "108px",
      hide: 1,
      cell: (row) => (row.lag ? duration(row.lagSeconds) : h("span.faint", null, "–")),
    },
    {
      key: "out",
      label: "Out",
      num: true,
      width: "88px",
      hide: 1,
      cell: (row) => perSecond(row.out),
    },
    {
      key: "failing",
      label: "Failing",
      num: true,
      width: "88px",
      hide: 1,
      cell: (row) => perSecond(row.failing),
    },
    {
      key: "failed",
      label: "Failed ever",
      sort: "failed",
      num: true,
      width: "104px",
      hide: 2,
      cell: (row) => count(row.failed),
    },
    {
      key: "dead",
      label: "Dead ever",
      num: true,
      width: "96px",
      hide: 2,
      cell: (row) => count(row.dead),
    },
  ].filter(Boolean);
  return table(key, {
    label: "Groups",
    columns,
    rows,
    id: (row) => `${row.queue}\n${row.name}`,
    href: (row) => link(["groups", row.name, row.queue]),
    tone: (row) => ({ stuck: "row-bad", behind: "row-warn" })[row.state] ?? "",
    ...more,
  });
}
