/* The columns that say where a group stands in a partition. */

import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { name, state } from "./parts.js";

export const PLACE = [
  { key: "partition", label: "Partition", sort: "id", cell: (row) => name(row.partition) },
  { key: "state", label: "State", width: "116px", cell: (row) => state(row.state) },
  {
    key: "lag",
    label: "Behind",
    sort: "lag",
    num: true,
    width: "96px",
    cell: (row) => count(row.lag),
  },
  {
    key: "age",
    label: "Oldest",
    sort: "age",
    num: true,
    hide: 1,
    width: "104px",
    cell: (row) =>
      row.ageSeconds === null ? h("span.faint", null, "–") : duration(row.ageSeconds),
  },
  {
    key: "attempts",
    label: "Failed tries",
    sort: "attempts",
    num: true,
    width: "116px",
    hide: 1,
    cell: (row) =>
      row.attempts ? h("span.bad", null, count(row.attempts)) : h("span.faint", null, "0"),
  },
];
