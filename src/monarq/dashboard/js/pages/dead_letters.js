/* Dead letters: grouped by error, looked into, redriven or purged. */

import { get } from "../api.js";
import { letterView, purgeLetters, redriveLetters } from "../dead_letter.js";
import { notice } from "../dialog.js";
import { h } from "../dom.js";
import { count, plural } from "../format.js";
import {
  button,
  empty,
  groupName,
  name,
  panel,
  queueLink,
  search,
  select,
  when,
} from "../parts.js";
import { inline } from "../payload.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { later } from "../timing.js";

const PAGE = 100;

export function open(ctx) {
  const filter = {
    queue: ctx.query.queue ?? "",
    consumerGroup: ctx.query.group ?? "",
    partition: ctx.query.partition ?? "",
  };
  let find = ctx.query.search ?? "";
  let error = ctx.query.error ?? null;
  let openId = ctx.query.id ?? null;
  let grouped = { errors: [], total: 0, truncated: false };
  let letters = { messages: [], total: 0, next: null };
  let known = { queues: [], groups: [] };
  const chosen = new Set();
  let version = 0;
  let asking = false;
  let seen = null;

  const narrow = () => ({ ...filter, ...(error !== null && { error }) });
  const isNarrow = () => Object.values(narrow()).some(Boolean) || error !== null;

  async function load() {
    const mine = ++version;
    const [groups, list] = await Promise.all([
      get("dashboard/dead-letters", { ...filter, search: find }),
      get("dlq", { ...narrow(), limit: PAGE }),
    ]);
    if (mine !== version) return;
    grouped = groups;
    letters = list;
    seen = ctx.overview()?.totals.deadLetters ?? null;
    if (!Object.values(filter).some(Boolean) && !find) {
      known = {
        queues: [...new Set(groups.errors.map((one) => one.queue))],
        // Those of work queues have no group.
        groups: [...new Set(groups.errors.map((one) => one.consumerGroup).filter(Boolean))],
      };
    } else {
      for (const [key, value] of [
        ["queues", filter.queue],
        ["groups", filter.consumerGroup],
      ]) {
        if (value && !known[key].includes(value)) known[key] = [...known[key], value];
      }
    }
  }

  async function more() {
    if (!letters.next || asking) return;
    asking = true;
    const mine = version;
    try {
      const answer = await get("dlq", { ...narrow(), limit: PAGE, after: letters.next });
      if (mine === version)
        letters = { ...answer, messages: [...letters.messages, ...answer.messages] };
    } catch (fault) {
      notice(fault.message, { bad: true });
    } finally {
      asking = false;
    }
    ctx.redraw();
  }

  const apply = later(200, async () => {
    chosen.clear();
    ctx.amend({
      queue: filter.queue,
      group: filter.consumerGroup,
      partition: filter.partition,
      search: find,
      error,
      id: openId,
    });
    await ctx.reload();
  });
  const set = (key) => (value) => {
    filter[key] = value;
    error = null;
    apply();
  };

  const redrive = async (...given) => (await redriveLetters(...given)) && after();
  const purge = async (...given) => (await purgeLetters(...given)) && after();

  const after = () => {
    chosen.clear();
    if (error !== null && letters.messages.length <= 1) error = null;
    return ctx.reload();
  };

  const choose = (id, whether) => {
    if (whether) chosen.add(id);
    else chosen.delete(id);
    ctx.redraw();
  };

  return {
    title: "Dead letters",
    topics: {
      overview: (data) => {
        if (data.totals && seen !== null && data.totals.deadLetters !== seen) {
          seen = data.totals.deadLetters;
          reloadSoon();
        }
      },
    },
    load,
    moved(query) {
      Object.assign(filter, {
        queue: query.queue ?? "",
        consumerGroup: query.group ?? "",
        partition: query.partition ?? "",
      });
      const same = (query.error ?? null) === error;
      find = query.search ?? "";
      error = query.error ?? null;
      openId = query.id ?? null;
      if (!same) chosen.clear();
      ctx.reload();
      return true;
    },
    actions: () =>
      grouped.total > 0 &&
      !isNarrow() && [
        ctx.can("write") &&
          button("Redrive all", () =>
            redrive({ all: true }, grouped.total, `all ${plural(grouped.total, "dead letter")}`),
          ),
        ctx.can("admin") &&
          button(
            "Purge all",
            () =>
              purge({ all: true }, grouped.total, `all ${plural(grouped.total, "dead letter")}`),
            { danger: true },
          ),
      ],
    render() {
      if (!grouped.total && !isNarrow() && !find) {
        return h(
          "section.panel",
          { "aria-label": "No dead letters" },
          empty(
            "There are no dead letters.",
            "What runs out of attempts comes here, with its last error, to be looked at and redriven. Good.",
          ),
        );
      }
      return [
        h(
          "div.toolbar",
          null,
          search("Search in errors", find, (value) => {
            find = value;
            apply();
          }),
          select(
            "Queue",
            [["", "all"], ...known.queues.map((one) => [one, one])],
            filter.queue,
            set("queue"),
          ),
          select(
            "Group",
            [["", "all"], ...known.groups.map((one) => [one, groupName(one)])],
            filter.consumerGroup,
            set("consumerGroup"),
          ),
          h(
            "div.toolbar-end.faint.small",
            { "aria-live": "polite" },
            plural(grouped.total, "dead letter"),
            grouped.truncated && ", the newest were grouped",
          ),
        ),
        h(
          "section.errors",
          { "aria-label": "By error" },
          grouped.errors.slice(0, 50).map(errorCard),
        ),
        letters.messages.length > 0 && list(),
      ];
    },
  };

  function reloadSoon() {
    clearTimeout(reloadSoon.timer);
    reloadSoon.timer = setTimeout(() => ctx.reload(), 1000);
  }

  function errorCard(one) {
    const what = { queue: one.queue, consumerGroup: one.consumerGroup, error: one.error };
    const here =
      error === one.error &&
      filter.queue === one.queue &&
      filter.consumerGroup === one.consumerGroup;
    const words = `${plural(one.count, "dead letter")} with this error`;
    return h(
      "article.error-group",
      {
        key: `${one.queue}\n${one.consumerGroup}\n${one.error}`,
        "aria-current": here ? "true" : null,
      },
      h("span.error-count", null, count(one.count)),
      h(
        "a.error-text",
        {
          dir: "auto",
          title: one.error.slice(0, 2000),
          href: link(["dead-letters"], {
            queue: one.queue,
            group: one.consumerGroup,
            error: one.error,
          }),
        },
        one.error || "(no error was given)",
      ),
      h(
        "p.error-where",
        null,
        queueLink(one.queue),
        one.consumerGroup && [" · ", name(groupName(one.consumerGroup))],
        " · ",
        when(one.newest),
        one.count > 1 && [", since ", when(one.oldest)],
      ),
      h(
        "div.error-buttons",
        null,
        ctx.can("write") && button("Redrive", () => redrive(what, one.count, words)),
        ctx.can("admin") && button("Purge", () => purge(what, one.count, words), { danger: true }),
      ),
    );
  }

  function list() {
    const ids = [...chosen];
    const one = letters.messages.find((each) => each.id === openId);
    return [
      panel(
        error === null ? "Letters" : "With this error",
        {
          note: `${plural(letters.total, "letter")}, newest first`,
          actions: [
            isNarrow() && h("a.button.button-small", { href: link(["dead-letters"]) }, "Show all"),
            chosen.size > 0 &&
              ctx.can("write") &&
              button(
                `Redrive ${chosen.size} chosen`,
                () => redrive({ ids }, ids.length, plural(ids.length, "dead letter")),
                { main: true },
              ),
            chosen.size > 0 &&
              ctx.can("admin") &&
              button(
                `Purge ${chosen.size} chosen`,
                () => purge({ ids }, ids.length, plural(ids.length, "dead letter")),
                { danger: true },
              ),
          ],
        },
        table("letters", {
          label: "Dead letters",
          rows: letters.messages,
          id: (row) => row.id,
          linkColumn: 1,
          view: version > 1 ? "again" : "first",
          href: (row) =>
            link(["dead-letters"], {
              queue: filter.queue,
              group: filter.consumerGroup,
              partition: filter.partition,
              search: find,
              error,
              id: row.id,
            }),
          tone: (row) => (row.id === openId ? "row-warn" : ""),
          columns: columns(),
          need: (first, last) => last >= letters.messages.length - 20 && more(),
        }),
      ),
      one && letterView(ctx, one, { redrive, purge }),
    ];
  }

  function columns() {
    const box = (row) =>
      h("input", {
        type: "checkbox",
        checked: chosen.has(row.id),
        "aria-label": `Choose ${row.transactionId}`,
        onchange: (event) => choose(row.id, event.target.checked),
      });
    const loaded = letters.messages.slice(0, 1000);
    const every = h("input", {
      type: "checkbox",
      "aria-label": "Choose all that are loaded",
      checked: loaded.length > 0 && loaded.every((row) => chosen.has(row.id)),
      onchange: (event) => {
        for (const row of loaded)
          if (event.target.checked) chosen.add(row.id);
          else chosen.delete(row.id);
        ctx.redraw();
      },
    });
    return [
      { key: "choose", label: "", head: every, width: "40px", cell: box },
      {
        key: "id",
        label: "Transaction id",
        kind: "grow",
        width: "16%",
        cell: (row) => h("span.mono.small", { dir: "auto" }, row.transactionId),
      },
      { key: "queue", label: "Queue", width: "12%", hide: 1, cell: (row) => name(row.queue) },
      {
        key: "partition",
        label: "Partition",
        width: "12%",
        hide: 2,
        cell: (row) => name(row.partition),
      },
      {
        key: "error",
        label: "Error",
        cell: (row) =>
          h(
            "span.small",
            { dir: "auto", title: row.errorMessage.slice(0, 2000) },
            row.errorMessage,
          ),
      },
      {
        key: "attempts",
        label: "Tries",
        num: true,
        width: "64px",
        hide: 1,
        cell: (row) => count(row.attempts),
      },
      {
        key: "data",
        label: "Payload",
        width: "18%",
        hide: 2,
        cell: (row) => h("span.mono.small.soft", { dir: "auto" }, inline(row)),
      },
      { key: "failed", label: "Died", width: "116px", cell: (row) => when(row.failedAt) },
    ];
  }
}
