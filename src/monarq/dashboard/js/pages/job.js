/* One item: what it runs, what it prints as it runs, its attempts. */

import { ApiError, get, path, post } from "../api.js";
import { confirm, notice } from "../dialog.js";
import { h, island } from "../dom.js";
import { bytes, count, duration, plural } from "../format.js";
import { itemState, what } from "../job_words.js";
import { button, facts, moment, name, panel, queueLink, state, when } from "../parts.js";
import { payload } from "../payload.js";
import { link } from "../router.js";

const RELOAD_MS = 3_000;
const KEPT = 400_000;
const OPEN = new Set(["ready", "scheduled", "leased"]);

export function open(ctx) {
  const [id] = ctx.parts;
  let item = null;
  let output = { attempt: null, text: "", next: 0, cut: false };
  let streamed = false;
  let decoder = new TextDecoder();

  const add = (data) => {
    const raw = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    let text = output.text + decoder.decode(raw, { stream: true });
    const cut = output.cut || text.length > KEPT;
    if (text.length > KEPT) text = text.slice(-KEPT);
    output = { ...output, text, cut };
  };

  const begin = (attempt) => {
    decoder = new TextDecoder();
    output = { attempt, text: "", next: 0, cut: false };
  };

  async function load() {
    item = await get(path`items/${id}`);
    if (item.state !== "leased" || streamed) return;
    if (output.attempt !== item.attempts) begin(item.attempts);
    try {
      const answer = await get(path`items/${id}/output`, {
        attempt: item.attempts,
        start: output.next,
      });
      if (streamed || output.attempt !== item.attempts) return;
      add(answer.data);
      output.next = answer.next;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
  }

  const timer = setInterval(() => {
    if (!document.hidden && (!item || OPEN.has(item.state))) ctx.reload();
  }, RELOAD_MS);

  const ask = (title, text, action, verb, danger) => async () => {
    const done = await confirm({
      title,
      text,
      action,
      danger,
      act: async () => {
        await post(path`items/${id}` + `/${verb}`);
        notice(verb === "cancel" ? "Cancelled." : "It is ready to be run again.");
      },
    });
    if (done) ctx.reload();
  };

  return {
    title: `Job ${id}`,
    get heading() {
      return item ? what(item).slice(0, 160) : `Job ${id}`;
    },
    get crumbs() {
      return [
        ["Jobs", link(["jobs"])],
        ...(item ? [[item.queue, link(["jobs"], { queue: item.queue })]] : []),
      ];
    },
    topics: {
      item: (data) => {
        if (
          data.reset ||
          !streamed ||
          (data.attempt !== undefined && data.attempt !== output.attempt)
        )
          begin(data.attempt ?? output.attempt);
        streamed = true;
        if (data.output) add(data.output);
        if (data.state && item && data.state !== item.state) ctx.reload();
      },
    },
    streaming: () => {
      streamed = false;
    },
    follow: () => ({ item: id }),
    load,
    leave: () => clearInterval(timer),
    actions: () => [
      itemState(item),
      ctx.can("write") &&
        item.state !== "leased" &&
        (item.attempts > 0 || item.state !== "ready") &&
        button(
          item.state === "ready" ? "Forget its attempts" : "Retry",
          ask(
            "Run it again?",
            "It becomes ready at once, with its attempts forgotten.",
            "Retry",
            "retry",
          ),
          { main: item.state !== "ready" },
        ),
      ctx.can("write") &&
        OPEN.has(item.state) &&
        button(
          "Cancel",
          ask(
            "Cancel this job?",
            item.state === "leased"
              ? "Its lease ends, and the worker that runs it stops it."
              : "It leaves the queue. It can be retried later.",
            "Cancel the job",
            "cancel",
            true,
          ),
          { danger: true },
        ),
    ],
    render: () =>
      h(
        "div.split.split-wide",
        null,
        h(
          "div.stack",
          null,
          (item.state === "leased" || output.text) &&
            panel(
              item.state === "leased" ? "Live output" : "Output",
              {
                note:
                  item.state === "leased"
                    ? `attempt ${item.attempts}, running on ${item.consumer ?? "a worker"}`
                    : `attempt ${output.attempt}`,
              },
              terminal(output, item.state === "leased"),
            ),
          item.error && panel("Last error", {}, h("p.poison-error", null, item.error)),
          attempts(),
          panel("Payload", {}, payload("data", item.data)),
        ),
        h(
          "div.stack",
          null,
          panel("About", {}, about()),
          item.headers &&
            Object.keys(item.headers).length > 0 &&
            panel(
              "Headers",
              {},
              payload("headers", item.headers, { small: true, label: "Headers" }),
            ),
        ),
      ),
  };

  function about() {
    return facts([
      ["Queue", queueLink(item.queue)],
      ["Id", h("span.mono", null, item.id)],
      ["Transaction id", h("span.mono", { dir: "auto" }, item.transactionId)],
      ["Attempts", `${item.attempts} of ${item.maxAttempts}`],
      [
        "Priority",
        `${item.priority}${item.state === "ready" ? `, by waiting now ${count(item.effectivePriority)}` : ""}`,
      ],
      ["Enqueued", moment(item.createdAt)],
      ["Runs", item.state === "scheduled" && item.runAt ? moment(item.runAt) : null],
      ["Lease until", item.leaseUntil && moment(item.leaseUntil)],
      ["Worker", item.consumer && name(item.consumer)],
      ["Finished", item.finishedAt && moment(item.finishedAt)],
      ["Enqueued by", item.producerSub && name(item.producerSub)],
      ["Trace id", item.traceId && h("span.mono", null, item.traceId)],
    ]);
  }

  function attempts() {
    if (!item.history.length) return null;
    return panel(
      "Attempts",
      { note: plural(item.history.length, "attempt") },
      h(
        "ol.timeline",
        null,
        item.history.toReversed().map((one) => {
          const { result } = one;
          const seconds = (Date.parse(one.endedAt) - Date.parse(one.startedAt)) / 1000;
          return h(
            "li",
            {
              key: one.attempt,
              class: `tl-${{ completed: "ok", failed: "warn" }[one.outcome] ?? "bad"}`,
            },
            h(
              "div.stack",
              null,
              h(
                "div",
                null,
                h("b", null, `Attempt ${one.attempt} `),
                state(one.outcome),
                " after ",
                duration(seconds),
                result?.exitCode !== undefined &&
                  result?.exitCode !== null &&
                  `, exit code ${result.exitCode}`,
                result?.timedOut && ", timed out",
                h(
                  "div.faint.small",
                  null,
                  when(one.startedAt),
                  one.consumer && [" on ", name(one.consumer)],
                ),
              ),
              one.error && h("p.poison-error", null, one.error),
              printed("Output", result?.stdout),
              printed("Error output", result?.stderr),
              printed("Traceback", result?.traceback),
              result?.value !== undefined &&
                result?.value !== null &&
                payload(`value-${one.attempt}`, result.value, { small: true, label: "Value" }),
              result &&
                !looksRun(result) &&
                payload(`result-${one.attempt}`, result, { small: true, label: "Result" }),
            ),
          );
        }),
      ),
    );
  }
}

const looksRun = (result) => typeof result === "object" && "seconds" in result;

function printed(label, text) {
  if (!text) return null;
  return h(
    "details",
    { open: text.length < 4000 },
    h("summary.small.soft", null, `${label}, ${bytes(new Blob([text]).size)}`),
    h("pre.terminal", { tabindex: "0", role: "group", "aria-label": label }, text),
  );
}

/** Output that grows: only what is new is added, and the end stays in sight if it was. */
function terminal(output, running) {
  return island("div", "terminal", { output, running }, (element) => {
    const text = h("pre.terminal", { tabindex: "0", role: "log", "aria-label": "Live output" });
    element.append(text);
    let shown = "";
    return ({ output: next, running: goes }) => {
      const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 40;
      if (next.text && next.text.startsWith(shown) && shown)
        text.append(next.text.slice(shown.length));
      else
        text.replaceChildren(
          next.text ||
            h(
              "span.terminal-note",
              null,
              goes ? "It has printed nothing yet." : "It printed nothing.",
            ),
        );
      if (next.cut && next.text !== shown)
        text.prepend(h("span.terminal-note", null, "… the beginning is left out\n"));
      shown = next.text;
      if (atEnd) text.scrollTop = text.scrollHeight;
    };
  });
}
