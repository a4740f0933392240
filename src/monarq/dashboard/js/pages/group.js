/* One group in one queue: how far behind, what it fails on, and what to do about it. */

import { ApiError, get, path } from "../api.js";
import { h } from "../dom.js";
import { refiltering } from "../filtering.js";
import { count, duration, plural, rate } from "../format.js";
import { destroyGroup, retryMessage, seek, skipMessage } from "../group_acts.js";
import { groupTable } from "../group_table.js";
import { PLACE } from "../partition_columns.js";
import {
  button,
  empty,
  groupName,
  messageLink,
  name,
  panel,
  queueLink,
  search,
  stat,
  state,
  when,
} from "../parts.js";
import { payload } from "../payload.js";
import { go, link } from "../router.js";
import { table, turned } from "../table.js";
import { Windowed } from "../windowed.js";

const RELOAD_MS = 5_000;

export function open(ctx) {
  return ctx.parts.length > 1 ? inQueue(ctx) : everywhere(ctx);
}

/** A group in all of its queues. */
function everywhere(ctx) {
  const [group] = ctx.parts;
  let rows = [];
  return {
    title: groupName(group),
    crumbs: [["Groups", link(["groups"])]],
    load: async () => {
      rows = (
        await get("dashboard/groups", { group, limit: 1000, sort: "lagSeconds", order: "desc" })
      ).groups;
    },
    render: () =>
      rows.length
        ? groupTable("group", rows)
        : empty(
            "There is no such group.",
            "A group is made by its first pop, and goes when it is deleted.",
          ),
  };
}

function inQueue(ctx) {
  const [group, queue] = ctx.parts;
  let line = null;
  let failing = { failing: [], truncated: false };
  let find = ctx.query.partition ?? "";
  let sort = { key: "lag", order: "desc" };

  const list = new Windowed(async (offset, limit) => {
    const answer = await get(path`dashboard/queues/${queue}/partitions`, {
      group,
      search: find,
      sort: sort.key,
      order: sort.order,
      offset,
      limit,
    });
    return { rows: answer.partitions, total: answer.total };
  }, ctx.redraw);

  async function load() {
    const [groups, bad] = await Promise.all([
      get("dashboard/groups", { group, queue, limit: 1 }),
      get(path`dashboard/groups/${group}/queues/${queue}/failing`, { limit: 20 }),
      list.reload(),
    ]);
    [line] = groups.groups;
    failing = bad;
    if (!line)
      throw new ApiError(404, "not_found", `${groupName(group)} does not consume ${queue}.`);
  }

  const apply = refiltering(
    ctx,
    () => ({ partition: find }),
    () => list.reset(),
  );
  const timer = setInterval(() => document.hidden || ctx.reload(), RELOAD_MS);
  const act = (action, what) => async () => {
    if (await action({ group, queue, ...what })) await ctx.reload();
  };

  return {
    title: `${groupName(group)} on ${queue}`,
    crumbs: [
      ["Groups", link(["groups"])],
      [groupName(group), link(["groups", group])],
    ],
    topics: {
      queue: (data) => {
        const next = data.groups?.find((one) => one.name === group);
        if (next) line = next;
      },
    },
    follow: () => ({ queue }),
    load,
    leave: () => clearInterval(timer),
    actions: () => [
      state(standing()),
      ctx.can("write") && button("Seek", act(seek)),
      ctx.can("admin") &&
        button(
          "Delete",
          async () => {
            if (await destroyGroup({ group, queue, lag: line.lag })) go(["groups"]);
          },
          { danger: true },
        ),
    ],
    render: () => [figures(), poison(), partitions()],
  };

  // A message that fails again and again blocks what is behind it, however short the while.
  function standing() {
    return line.lag && failing.failing.some((one) => one.attempts > 1) ? "stuck" : line.state;
  }

  function figures() {
    return h(
      "section.stats",
      { "aria-label": "Now" },
      stat("Messages behind", count(line.lag), { tone: standing() === "stuck" ? "bad" : "" }),
      stat("Time behind", line.lag ? duration(line.lagSeconds) : "0 s", {
        tone: line.lag && line.lagSeconds > 300 ? "warn" : "",
      }),
      stat("Out", rate(line.out), { unit: "/s" }),
      stat("Failing", rate(line.failing), { unit: "/s", tone: line.failing ? "warn" : "" }),
      stat("Completed ever", count(line.completed)),
      stat("Dead ever", count(line.dead), {
        tone: line.dead ? "bad" : "",
        href: link(["dead-letters"], { queue, group }),
      }),
      h(
        "div.stat",
        null,
        h("span.stat-label", null, "Queue"),
        h("span", null, queueLink(queue)),
        h("span.stat-note", null, "since ", when(line.createdAt)),
      ),
    );
  }

  function poison() {
    const { failing: all, truncated } = failing;
    if (!all.length) return null;
    return panel(
      "Failing messages",
      {
        note: `${plural(all.length, "partition")}${truncated ? " or more" : ""} blocked: what is behind waits, because order is kept`,
      },
      all.map(card),
    );
  }

  function card(one) {
    const what = { partition: one.partition, seq: one.seq, behind: one.behind };
    const tries = one.retryLimit + 1;
    return h(
      "article.poison",
      {
        key: `${one.partitionId}-${one.seq}`,
        "aria-label": `Failing message ${one.seq} in ${one.partition}`,
      },
      h(
        "div.poison-head",
        null,
        h(
          "span",
          null,
          "Partition ",
          h("b.name", { dir: "auto" }, one.partition),
          ", ",
          messageLink(one.partitionId, `${one.partitionId}-${one.seq}`, `seq ${count(one.seq)}`),
        ),
        h(
          "span",
          null,
          tries <= 12 && attemptDots(one.attempts, tries),
          ` failed ${one.attempts} of ${plural(tries, "try", "tries")}`,
        ),
        h(
          "span",
          null,
          h("b", null, count(one.behind)),
          " waiting behind it, the oldest for ",
          duration(one.ageSeconds),
        ),
        one.retryAt && h("span.soft", null, "next try due ", when(one.retryAt)),
        one.leaseUntil && h("span.soft", null, "now with ", name(one.consumer ?? "a consumer")),
      ),
      h(
        "p.poison-error",
        null,
        one.error ?? "Its consumer gave no error: its leases ran out, or it failed without a word.",
      ),
      one.data !== null &&
        payload(`poison-${one.partitionId}-${one.seq}`, one.data, {
          small: true,
          label: `Payload of ${one.partition} seq ${one.seq}`,
        }),
      h(
        "div.poison-buttons",
        null,
        ctx.can("write") &&
          button("Skip to the dead letters", act(skipMessage, what), { main: true }),
        ctx.can("write") && button("Try again now", act(retryMessage, what)),
        ctx.can("write") &&
          button("Seek in this partition", act(seek, { partition: one.partition })),
        h(
          "a.button.button-small",
          { href: link(["messages", one.partitionId, `${one.partitionId}-${one.seq}`]) },
          "Open the message",
        ),
      ),
    );
  }

  function partitions() {
    return panel(
      "Partitions",
      {
        note: plural(list.total ?? 0, "partition"),
        actions: search("Search partitions", find, (value) => {
          find = value;
          apply();
        }),
      },
      list.total
        ? table("partitions", {
            label: "Partitions",
            columns: COLUMNS,
            rows: list.rows,
            total: list.total,
            need: list.need,
            view: list.version,
            id: (row) => row.partitionId,
            sort,
            tone: (row) => (row.attempts ? "row-bad" : ""),
            href: (row) =>
              link(["messages"], {
                queue,
                partition: row.partition,
                firstSeq: row.headSeq ?? "",
                group,
              }),
            onsort: (key) => {
              sort = turned(sort, key, key === "id" ? "asc" : "desc");
              apply();
            },
          })
        : h("p.soft", null, find ? "No partition matches." : "The queue has no partition yet."),
    );
  }
}

function attemptDots(used, tries) {
  return h(
    "span.dots",
    { "aria-hidden": "true" },
    Array.from({ length: tries }, (_, index) =>
      h("span.dot", { class: index < used ? "dot-used" : "" }),
    ),
  );
}

const COLUMNS = [
  ...PLACE,
  {
    key: "position",
    label: "Position",
    num: true,
    width: "150px",
    hide: 1,
    cell: (row) => `${count(row.position)} of ${count(row.lastSeq)}`,
  },
  {
    key: "consumer",
    label: "Lease holder",
    width: "190px",
    hide: 2,
    cell: (row) => (row.leaseUntil ? name(row.consumer ?? "unnamed") : h("span.faint", null, "–")),
  },
];
