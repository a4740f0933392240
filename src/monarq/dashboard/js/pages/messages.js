/* Messages: browse a queue by partition, seq and time; look one up; push one by hand. */

import { get } from "../api.js";
import { notice } from "../dialog.js";
import { h } from "../dom.js";
import { clipped, count } from "../format.js";
import { button, empty, groupName, name, search, select, state, when } from "../parts.js";
import { inline } from "../payload.js";
import { openPushed, pushByHand } from "../push_form.js";
import { go, link } from "../router.js";
import { table } from "../table.js";
import { later } from "../timing.js";

const STATUS = [
  ["", "any state"],
  ["pending", "pending"],
  ["processing", "processing"],
  ["completed", "completed"],
  ["dead_letter", "dead letter"],
];
const PAGE = 100;

export function open(ctx) {
  const filter = {
    queue: ctx.query.queue ?? "",
    partition: ctx.query.partition ?? "",
    firstSeq: ctx.query.firstSeq ?? "",
    from: ctx.query.from ?? "",
    to: ctx.query.to ?? "",
    status: ctx.query.status ?? "",
    group: ctx.query.group ?? "",
  };
  let find = ctx.query.find ?? "";
  let queues = [];
  let groups = [];
  let rows = [];
  let next = null;
  let found = null;
  let foundPart = false;
  let fault = null;
  let version = 0;
  let asking = false;
  let stale = true;
  let view = 0;

  const query = (after) => ({
    queue: filter.queue,
    partition: filter.partition,
    firstSeq: filter.firstSeq,
    status: filter.status,
    consumerGroup: filter.group,
    from: isoTime(filter.from),
    to: isoTime(filter.to),
    limit: PAGE,
    after,
  });

  async function browse() {
    const mine = ++version;
    fault = null;
    if (!filter.queue) return;
    try {
      const answer = await get("messages", query());
      if (mine !== version) return;
      rows = answer.messages;
      next = answer.next;
      stale = false;
    } catch (error) {
      if (error.unreachable) throw error;
      rows = [];
      next = null;
      fault = error.message;
    }
  }

  async function more() {
    if (!next || asking) return;
    asking = true;
    const mine = version;
    try {
      const answer = await get("messages", query(next));
      if (mine !== version) return;
      rows = [...rows, ...answer.messages];
      next = answer.next;
    } catch (error) {
      notice(error.message, { bad: true });
    } finally {
      asking = false;
    }
    ctx.redraw();
  }

  async function lookUp() {
    found = null;
    if (!find) return;
    const answer = await get("dashboard/find", { transactionId: find, queue: filter.queue });
    found = answer.found;
    foundPart = answer.truncated;
  }

  async function load() {
    const [list, all] = await Promise.all([
      get("dashboard/queues", { kind: "ordered", limit: 1000, sort: "name" }),
      filter.queue ? get("dashboard/groups", { queue: filter.queue, limit: 1000 }) : { groups: [] },
    ]);
    queues = list.queues;
    groups = all.groups;
    if (!filter.queue && queues.length === 1) filter.queue = queues[0].name;
    await lookUp();
    // While somebody reads on below, the pages that are loaded stay.
    if (stale || rows.length <= PAGE) await browse();
  }

  const apply = later(250, async () => {
    ctx.amend({ ...filter, find });
    stale = true;
    view += 1;
    await ctx.reload();
  });
  const set = (key) => (value) => {
    filter[key] = value;
    if (key === "queue") Object.assign(filter, { partition: "", firstSeq: "", group: "" });
    apply();
  };
  const submitFind = async (event) => {
    event.preventDefault();
    find = event.target.elements.find.value.trim();
    ctx.amend({ find });
    try {
      await lookUp();
      if (found?.length === 1) return go(...where(found[0]));
    } catch (error) {
      notice(error.message, { bad: true });
    }
    return ctx.redraw();
  };

  return {
    title: "Messages",
    load,
    actions: () =>
      ctx.can("write") &&
      button(
        "Push a message",
        async () => {
          const line = queues.find((one) => one.name === filter.queue);
          const pushed = await pushByHand(line, { partition: filter.partition });
          if (pushed) openPushed(pushed);
        },
        { main: true, small: false },
      ),
    render() {
      if (!queues.length) {
        return h(
          "section.panel",
          { "aria-label": "No messages" },
          empty(
            "There is no ordered queue yet.",
            "A queue is made by the first push to it.",
            "monarq push orders '{\"total\": 12.5}'",
          ),
        );
      }
      return [
        h(
          "form.toolbar",
          { onsubmit: submitFind, role: "search" },
          h("input.input.search", {
            key: "find",
            name: "find",
            type: "search",
            "aria-label": "Look up by transaction id or message id",
            placeholder: "Look up: transaction id or message id",
            value: find,
            autocomplete: "off",
            spellcheck: "false",
          }),
          h("button.button", { type: "submit" }, "Look up"),
          found && h("span.faint.small", { role: "status" }, toldFound()),
        ),
        found?.length > 1 &&
          h(
            "ul.stack",
            null,
            found.map((one) =>
              h(
                "li",
                null,
                h("a", { href: link(...where(one)) }, one.id),
                " in ",
                name(one.queue),
                " / ",
                name(one.partition),
              ),
            ),
          ),
        h(
          "div.toolbar",
          { key: "filters" },
          select("Queue", queueChoices(), filter.queue, set("queue")),
          search("Partition, whole name", filter.partition, set("partition"), {
            placeholder: "Partition",
            key: "partition",
            short: true,
          }),
          h("input.input", {
            key: "seq",
            type: "number",
            min: "1",
            "aria-label": "From seq",
            placeholder: "From seq",
            value: filter.firstSeq,
            style: { width: "110px" },
            oninput: (event) => set("firstSeq")(event.target.value),
          }),
          h(
            "label.select",
            { key: "from" },
            h("span.select-label", null, "From"),
            h("input.input", {
              type: "datetime-local",
              step: "1",
              value: filter.from,
              oninput: (event) => set("from")(event.target.value),
            }),
          ),
          h(
            "label.select",
            { key: "to" },
            h("span.select-label", null, "to"),
            h("input.input", {
              type: "datetime-local",
              step: "1",
              value: filter.to,
              oninput: (event) => set("to")(event.target.value),
            }),
          ),
          select("State", STATUS, filter.status, set("status")),
          groups.length > 1 &&
            select(
              "of",
              [["", "all groups"], ...groups.map((one) => [one.name, groupName(one.name)])],
              filter.group,
              set("group"),
            ),
        ),
        fault && h("p.form-fault", { role: "alert" }, fault),
        !filter.queue
          ? empty("Choose a queue to browse.", "Or look a message up by its id above.")
          : list(),
      ];
    },
  };

  function queueChoices() {
    const names = queues.map((one) => one.name);
    if (filter.queue && !names.includes(filter.queue)) names.unshift(filter.queue);
    return [["", "choose…"], ...names.map((one) => [one, clipped(one, 48)])];
  }

  function toldFound() {
    const some = foundPart ? ", but not everything was looked at; choose a queue" : "";
    if (found.length) return `${found.length} found${some}.`;
    return `Nothing has the id ${clipped(find, 60)}${some}.`;
  }

  function list() {
    if (!rows.length && !fault)
      return empty(
        "No message matches.",
        "What is consumed and past its retention is gone; widen the filter, or push one.",
      );
    return h(
      "div.stack",
      null,
      table("messages", {
        label: "Messages",
        rows,
        total: rows.length,
        id: (row) => row.id,
        view,
        href: (row) => link(["messages", row.partitionId, row.id]),
        columns: COLUMNS,
        need: (first, last) => last >= rows.length - 20 && more(),
      }),
      h(
        "p.faint.small",
        { "aria-live": "polite" },
        next ? `${count(rows.length)} loaded, more below` : `${count(rows.length)}, that is all`,
      ),
    );
  }
}

const where = (one) => [
  one.kind === "item" ? ["jobs", one.id] : ["messages", one.partitionId, one.id],
];

function isoTime(local) {
  const time = local ? new Date(local) : null;
  return time && !Number.isNaN(time.getTime()) ? time.toISOString() : "";
}

const COLUMNS = [
  {
    key: "partition",
    label: "Partition",
    kind: "grow",
    width: "22%",
    cell: (row) => name(row.partition),
  },
  { key: "seq", label: "Seq", num: true, width: "80px", cell: (row) => count(row.seq) },
  { key: "status", label: "State", width: "124px", cell: (row) => state(row.status) },
  {
    key: "data",
    label: "Payload",
    hide: 1,
    cell: (row) => h("span.mono.small.soft", { dir: "auto" }, inline(row)),
  },
  {
    key: "transaction",
    label: "Transaction id",
    width: "18%",
    hide: 2,
    cell: (row) => h("span.mono.small", { dir: "auto" }, row.transactionId),
  },
  { key: "created", label: "Pushed", width: "110px", hide: 1, cell: (row) => when(row.createdAt) },
];
