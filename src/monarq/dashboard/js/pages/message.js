/* One message: its payload, what each group did with it, its deliveries and its trace. */

import { ApiError, get, path, post, remove } from "../api.js";
import { confirm, notice } from "../dialog.js";
import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { skipMessage } from "../group_acts.js";
import { timeline } from "../message_timeline.js";
import {
  button,
  facts,
  groupLink,
  moment,
  name,
  panel,
  plainTable,
  queueLink,
  state,
  when,
} from "../parts.js";
import { payload } from "../payload.js";
import { go, link } from "../router.js";

const RELOAD_MS = 5_000;
const NEWEST = 200;
const FINAL = new Set(["done", "dead"]);

export function open(ctx) {
  const [partitionId, id] = ctx.parts;
  let message = null;
  let groups = [];
  let deliveries = { deliveries: [], truncated: false };
  let traces = [];
  let all = false;
  const at = (rest) => path`messages/${partitionId}/${id}` + rest;

  async function load() {
    [message, { groups }, deliveries, { traces }] = await Promise.all([
      get(at("")),
      get(at("/groups")),
      get(at("/deliveries"), { limit: 100 }),
      get(path`traces/${partitionId}/${id}`),
    ]);
    if (groups.some((one) => one.state === "done")) await findDead();
  }

  // A message that is dead for a group is done with there; the dead letters tell which it was.
  async function findDead() {
    const { queue, partition } = message;
    const { messages } = await get("dlq", { queue, partition, limit: NEWEST });
    const dead = new Map(
      messages.filter((one) => one.messageId === message.id).map((one) => [one.consumerGroup, one]),
    );
    groups = groups.map((one) => {
      const letter = dead.get(one.group);
      return letter ? { ...one, state: "dead", attempts: letter.attempts } : one;
    });
  }

  const showAll = () => {
    all = true;
    ctx.redraw();
  };

  // Once every group is through with it, nothing of it changes any more.
  const timer = setInterval(() => {
    if (!document.hidden && !(groups.length && groups.every((one) => FINAL.has(one.state))))
      ctx.reload();
  }, RELOAD_MS);

  return {
    title: `Message ${id}`,
    get heading() {
      return message ? `${message.partition} · seq ${count(message.seq)}` : `Message ${id}`;
    },
    get crumbs() {
      const way = [["Messages", link(["messages"])]];
      if (message)
        way.push([
          message.queue,
          link(["messages"], { queue: message.queue, partition: message.partition }),
        ]);
      return way;
    },
    load,
    leave: () => clearInterval(timer),
    actions() {
      const near = (seq, label) =>
        seq >= 1 &&
        h(
          "a.button.button-small",
          { href: link(["messages", partitionId, `${partitionId}-${seq}`]) },
          label,
        );
      return [
        near(message.seq - 1, "← Previous"),
        near(message.seq + 1, "Next →"),
        ctx.can("write") &&
          groups.some((one) => one.state === "dead") &&
          button("Redrive", redrive, { main: true }),
        ctx.can("admin") && button("Delete", destroy, { danger: true }),
      ];
    },
    render() {
      return h(
        "div.split.split-wide",
        null,
        h(
          "div.stack",
          null,
          panel("Payload", {}, payload("data", message.data)),
          message.headers &&
            Object.keys(message.headers).length > 0 &&
            panel(
              "Headers",
              {},
              payload("headers", message.headers, { small: true, label: "Headers" }),
            ),
          panel(
            "Timeline",
            { note: deliveries.truncated ? "the latest only" : null },
            timeline(message, deliveries.deliveries, traces, { all, showAll }),
          ),
        ),
        h("div.stack", null, panel("State by group", {}, states()), panel("About", {}, about())),
      );
    },
  };

  function states() {
    if (!groups.length) return h("p.soft", null, "No group consumes this queue yet, so it waits.");
    return plainTable(
      "State by group",
      [["Group"], ["State"], ["Failed tries"], [h("span.hidden-text", null, "Actions")]],
      groups.map((one) =>
        h(
          "tr",
          { key: one.group },
          h("td", null, groupLink(one.group, message.queue)),
          h(
            "td",
            null,
            state(one.state),
            one.leaseUntil &&
              h(
                "div.faint.small",
                null,
                name(one.consumer ?? "a consumer"),
                ", until ",
                when(one.leaseUntil),
              ),
            one.retryAt && h("div.faint.small", null, "next try due ", when(one.retryAt)),
          ),
          h("td", null, one.attempts ? `${one.attempts} of ${one.retryLimit + 1}` : "none"),
          h(
            "td.num",
            null,
            one.isHead &&
              ctx.can("write") &&
              (one.attempts > 0 || one.state === "leased") &&
              button("Skip it", () => skip(one), {
                danger: true,
                title: "Move it to the dead letters, and go on behind it",
              }),
          ),
        ),
      ),
    );
  }

  async function skip(one) {
    const done = await skipMessage({
      group: one.group,
      queue: message.queue,
      partition: message.partition,
      seq: message.seq,
    });
    if (done) ctx.reload();
  }

  function about() {
    return facts([
      ["Queue", queueLink(message.queue)],
      [
        "Partition",
        h(
          "a.name",
          {
            dir: "auto",
            href: link(["messages"], { queue: message.queue, partition: message.partition }),
          },
          message.partition,
        ),
      ],
      ["Seq", count(message.seq)],
      ["Message id", h("span.mono", null, message.id)],
      ["Transaction id", h("span.mono", { dir: "auto" }, message.transactionId)],
      ["Trace id", message.traceId && h("span.mono", { dir: "auto" }, message.traceId)],
      ["Pushed", moment(message.createdAt)],
      ["Pushed by", message.producerSub && name(message.producerSub)],
    ]);
  }

  async function redrive() {
    const done = await confirm({
      title: "Redrive this message?",
      text: "It goes back to the end of its partition, for each group that failed on it.",
      action: "Redrive",
      act: async () => {
        const answer = await post(at("/retry"));
        notice(`${plural(answer.redriven, "dead letter")} put back.`);
      },
    });
    if (done) ctx.reload();
  }

  async function destroy() {
    const done = await confirm({
      title: "Delete this message?",
      losses: ["Its payload goes for good.", "No group will be given it any more."],
      action: "Delete the message",
      danger: true,
      act: () => remove(at("")),
    }).catch((error) => {
      if (!(error instanceof ApiError)) throw error;
      notice(error.message, { bad: true });
    });
    if (!done) return;
    notice("The message is deleted.");
    go(["messages"], { queue: message.queue, partition: message.partition });
  }
}
