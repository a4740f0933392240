/* What happened to a message, from its push on: deliveries and the traces that consumers left. */

import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { button, groupName, moment, name } from "./parts.js";
import { payload } from "./payload.js";

const SHOWN = 12;
const OUTCOMES = ["completed", "failed", "released", "dead"];

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** `all`: whether everything is shown; `showAll()` when somebody asks for that. */
export function timeline(message, deliveries, traces, { all, showAll }) {
  const later = [...deliveries.map(delivery), ...traces.map(trace)];
  later.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  const left = all ? 0 : Math.max(0, later.length - SHOWN);
  return h(
    "ol.timeline",
    null,
    point({
      key: "pushed",
      at: message.createdAt,
      tone: "info",
      what: ["Pushed", message.producerSub && [" by ", name(message.producerSub)]],
    }),
    left > 0 && h("li", { key: "left" }, h("div", null, button(`Show ${left} earlier`, showAll))),
    later.slice(left).map(point),
  );
}

function point(one) {
  return h(
    "li",
    { key: one.key, class: `tl-${one.tone}` },
    h("div", null, h("div", null, one.what), h("div.faint.small", null, moment(one.at)), one.more),
  );
}

// The counts are those of the whole batch that it was delivered in.
function delivery(one) {
  const size = one.lastSeq - one.firstSeq + 1;
  const key = `lease-${one.group}-${one.leaseNumber}`;
  const who = [
    name(one.consumer ?? "a consumer"),
    " of ",
    name(groupName(one.group)),
    size > 1 && `, in a batch of ${count(size)}`,
  ];
  if (!one.endedAt) return { key, at: one.leasedAt, tone: "accent", what: ["With ", who, " now"] };
  const counts = OUTCOMES.filter((each) => one[each]).map((each) =>
    size > 1 ? `${count(one[each])} ${each}` : each,
  );
  if (one.expired) counts.push("lease expired");
  return {
    key,
    at: one.leasedAt,
    tone: one.dead || one.expired ? "bad" : one.failed ? "warn" : "ok",
    what: [
      h("b", null, capital(counts.join(", ") || "ended")),
      ` after ${duration(one.seconds)} by `,
      who,
    ],
    more: one.error && h("p.poison-error", null, one.error),
  };
}

function trace(one) {
  return {
    key: `trace-${one.id}`,
    at: one.createdAt,
    tone: "accent",
    what: [h("b.name", { dir: "auto" }, one.eventType), " noted by a consumer"],
    more: [
      payload(`trace-${one.id}`, one.data, { small: true, label: `Trace ${one.eventType}` }),
      one.traceNames.length > 0 &&
        h(
          "p.faint.small",
          null,
          "Traces: ",
          one.traceNames.map((each) => [name(each), " "]),
        ),
    ],
  };
}
