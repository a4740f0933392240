/* The states of a work queue's items, as one bar and as figures. */

import { h } from "./dom.js";
import { count } from "./format.js";
import { link } from "./router.js";

export const STATES = [
  ["scheduled", "scheduled", "violet"],
  ["ready", "ready", "in"],
  ["leased", "running", "out"],
  ["done", "done", "ok"],
  ["dead", "dead", "dead"],
  ["cancelled", "cancelled", "quiet"],
];

export function statesBar(states, queue) {
  const total = STATES.reduce((sum, [key]) => sum + (states[key] ?? 0), 0);
  return h(
    "div.stack",
    null,
    h(
      "div.states",
      { "aria-hidden": "true" },
      total > 0 &&
        STATES.map(([key, , tone]) =>
          states[key] ? h(`span.tone-${tone}`, { style: { flex: String(states[key]) } }) : null,
        ),
    ),
    h(
      "ul.legend",
      null,
      STATES.map(([key, label, tone]) =>
        h(
          "li",
          null,
          h(`span.swatch.tone-${tone}`),
          h("a", { href: link(["jobs"], { queue, state: key }) }, label),
          h("b", null, count(states[key] ?? 0)),
        ),
      ),
    ),
  );
}
