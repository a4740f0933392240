/* All groups: who is behind, by how much, on which queue. */

import { get } from "../api.js";
import { h } from "../dom.js";
import { refiltering } from "../filtering.js";
import { plural } from "../format.js";
import { groupTable } from "../group_table.js";
import { empty, search } from "../parts.js";
import { turned } from "../table.js";
import { Windowed } from "../windowed.js";

const id = (row) => `${row.queue}\n${row.name}`;

export function open(ctx) {
  const filter = { search: ctx.query.search ?? "", queue: ctx.query.queue ?? "" };
  let sort = { key: ctx.query.sort ?? "lagSeconds", order: ctx.query.order ?? "desc" };
  const list = new Windowed(
    async (offset, limit) => {
      const answer = await get("dashboard/groups", {
        ...filter,
        sort: sort.key,
        order: sort.order,
        offset,
        limit,
      });
      return { rows: answer.groups, total: answer.total, at: answer.at };
    },
    ctx.redraw,
    id,
  );
  const apply = refiltering(
    ctx,
    () => ({ ...filter, sort: sort.key, order: sort.order }),
    () => list.reset(),
  );

  return {
    title: "Groups",
    topics: {
      groups: (data) => {
        const known = new Set(list.rows.filter(Boolean).map(id));
        const fresh = list.total < 100 && data.changed.some((row) => !known.has(id(row)));
        list.merge(data.changed, data.at);
        if (data.more || data.gone?.length || (fresh && !filter.search)) ctx.reload();
      },
    },
    load: () => list.reload(),
    render() {
      if (!list.total && !filter.search && !filter.queue) {
        return h(
          "section.panel",
          { "aria-label": "No groups" },
          empty(
            "There is no group yet.",
            "A group is made by its first pop, and keeps a cursor of its own in every partition.",
            "monarq pop orders --group billing",
          ),
        );
      }
      return [
        h(
          "div.toolbar",
          null,
          search("Search groups", filter.search, (value) => {
            filter.search = value;
            apply();
          }),
          h(
            "div.toolbar-end.faint.small",
            { "aria-live": "polite" },
            plural(list.total ?? 0, "group"),
          ),
        ),
        list.total
          ? groupTable("groups", list.rows, {
              total: list.total,
              need: list.need,
              view: list.version,
              sort,
              onsort: (key) => {
                sort = turned(sort, key, key === "name" || key === "queue" ? "asc" : "desc");
                apply();
              },
            })
          : empty("No group matches.", "Try a shorter part of its name."),
      ];
    },
  };
}
