/* Small pieces that pages are made of. They show what they are given and know no page. */

import { h } from "./dom.js";
import { bytes, count, duration, exact, parse, plural, rate, relative, short } from "./format.js";
import { link } from "./router.js";

// The broker's clock, as far as we know it: times are told relative to it, not to this machine's.
let skew = 0;

export function setServerTime(iso) {
  const time = parse(iso);
  if (time !== null) skew = time - Date.now();
}

export const now = () => Date.now() + skew;

/** A time: relative in words, exact on hover. It is kept current. */
export function when(iso, { none = "never" } = {}) {
  const time = parse(iso);
  if (time === null) return h("span.faint", null, none);
  return h(
    "time.when",
    { datetime: iso, title: `${exact(time)} (your time)\n${iso}` },
    relative(time, now()),
  );
}

/** The same with the exact time beside it. */
export function moment(iso) {
  const time = parse(iso);
  if (time === null) return h("span.faint", null, "–");
  return h(
    "span",
    null,
    h("span.nowrap", null, exact(time)),
    " ",
    h("span.faint.small", null, when(iso)),
  );
}

/** Rewrites all relative times on the page. */
export function tellTimes(root) {
  for (const element of root.querySelectorAll("time.when")) {
    const text = relative(Date.parse(element.dateTime), now());
    if (element.textContent !== text) element.textContent = text;
  }
}

/** A figure with its unit. */
export function figure(text, unit) {
  return h("span.nowrap", null, text, unit && h("span.unit", null, unit));
}

export const perSecond = (value) => figure(rate(value), "/s");

export const size = (value) => {
  const [number, unit] = bytes(value).split(" ");
  return figure(number, unit);
};

const TONES = {
  ordered: "quiet",
  work: "violet",
  pending: "info",
  ready: "info",
  available: "info",
  scheduled: "violet",
  delayed: "violet",
  processing: "accent",
  leased: "accent",
  running: "accent",
  working: "accent",
  stopping: "warn",
  retrying: "warn",
  failed: "warn",
  behind: "warn",
  paused: "warn",
  lost: "bad",
  stuck: "bad",
  completed: "ok",
  done: "ok",
  succeeded: "ok",
  "caught up": "ok",
  drained: "quiet",
  idle: "quiet",
  dead: "bad",
  dead_letter: "bad",
  expired: "bad",
  killed: "bad",
  cancelled: "quiet",
  stopped: "quiet",
  ahead: "quiet",
  released: "quiet",
  healthy: "ok",
  degraded: "warn",
  unhealthy: "bad",
};

/** A state as a word with its colour. */
export function state(word, label = word) {
  return h(`span.state.state-${TONES[word] ?? "quiet"}`, null, String(label).replaceAll("_", " "));
}

/** A name that came from outside. */
export const name = (text) => h("span.name", { dir: "auto", title: text }, text);

export const queueLink = (queue, query) =>
  h("a.name", { href: link(["queues", queue], query), dir: "auto", title: queue }, queue);

export const groupLink = (group, queue) =>
  h(
    "a.name",
    { href: link(["groups", group, queue]), dir: "auto", title: group },
    groupName(group),
  );

export const messageLink = (partitionId, id, text) =>
  h("a.name.mono", { href: link(["messages", partitionId, id]), dir: "auto" }, text ?? id);

/** The group of those that name none has a name that nobody chose. */
export const groupName = (group) => (group === "__QUEUE_MODE__" ? "(default group)" : group);

/** A sentence in which names stand in `backticks`. */
export function sentence(text) {
  return text
    .split("`")
    .map((part, index) =>
      index % 2
        ? h("b.name", { dir: "auto" }, part === "__QUEUE_MODE__" ? groupName(part) : part)
        : part,
    );
}

export function panel(title, { actions, note, id } = {}, ...children) {
  return h(
    "section.panel",
    id ? { "aria-labelledby": id } : { "aria-label": title },
    h(
      "div.panel-head",
      null,
      h("h2", { id }, title),
      note && h("span.panel-note", null, note),
      actions && h("div.panel-actions", null, actions),
    ),
    children,
  );
}

/** What to do where there is nothing to see. `commands`: what to run, if anything. */
export function empty(title, text, ...commands) {
  return h(
    "div.empty",
    null,
    h(
      "svg.empty-mark",
      { viewBox: "0 0 64 40", "aria-hidden": "true" },
      h("path", { d: "M31 20C26 6 12 1 3 4c-1 9 5 17 14 18-6 3-8 9-4 13 6 4 14-2 18-12z" }),
      h("path", { d: "M33 20C38 6 52 1 61 4c1 9-5 17-14 18 6 3 8 9 4 13-6 4-14-2-18-12z" }),
    ),
    h("p.empty-title", null, title),
    text && h("p.soft", null, text),
    commands.filter(Boolean).map(commandLine),
  );
}

/** A command for this broker, that can be copied. Without its address it would go to the store of
    whoever runs it. */
export function commandLine(short) {
  const command = `${short} --url ${location.origin}`;
  const copy = async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousSibling);
      button.textContent = "Select and copy";
    }
  };
  return h(
    "div.command",
    null,
    h("code", null, command),
    h(
      "button.button.button-small",
      { type: "button", onclick: copy, "aria-label": `Copy: ${command}` },
      "Copy",
    ),
  );
}

export function button(
  label,
  onclick,
  { main = false, danger = false, small = true, title, disabled } = {},
) {
  const look = [
    main ? "button-main" : "",
    danger ? "button-danger" : "",
    small ? "button-small" : "",
  ];
  return h(
    "button.button",
    { type: "button", class: look.join(" "), onclick, title, disabled },
    label,
  );
}

/** One of several, as buttons side by side. `choices`: [[value, label], …]. */
export function choice(label, choices, chosen, onchoose) {
  return h(
    "div.choice",
    { role: "group", "aria-label": label },
    choices.map(([value, text]) =>
      h(
        "button.choice-one",
        {
          type: "button",
          "aria-pressed": String(value === chosen),
          onclick: () => onchoose(value),
        },
        text,
      ),
    ),
  );
}

/** Pages within a page. `tabs`: [[key, label, count?], …]; each has an address of its own. */
export function tabs(label, all, chosen, href) {
  return h(
    "nav.tabs",
    { "aria-label": label },
    all.map(([key, text, number]) =>
      h(
        "a.tab",
        { href: href(key), "aria-current": key === chosen ? "page" : null },
        text,
        number ? h("span.tab-count", null, short(number)) : null,
      ),
    ),
  );
}

export function search(
  label,
  value,
  oninput,
  { placeholder = label, key = "search", short = false } = {},
) {
  return h("input.input.search", {
    key,
    class: short ? "search-short" : "",
    type: "search",
    "aria-label": label,
    placeholder,
    value,
    autocomplete: "off",
    spellcheck: "false",
    oninput: (event) => oninput(event.target.value),
  });
}

export function select(label, options, value, onchange) {
  return h(
    "label.select",
    null,
    h("span.select-label", null, label),
    h(
      "select.input",
      { value, onchange: (event) => onchange(event.target.value) },
      options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
    ),
  );
}

/** A table of few rows, in room of its own should it be wider than the page. `heads`: what stands
    above each column, and its class if it has one; `rows`: elements. */
export function plainTable(label, heads, rows, tag = "table.plain") {
  return h(
    "div.plain-scroll",
    { tabindex: "0", role: "group", "aria-label": label },
    h(
      tag,
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          heads.map(([text, kind]) => h("th", { scope: "col", class: kind ?? null }, text)),
        ),
      ),
      h("tbody", null, rows),
    ),
  );
}

/** Term and description, side by side. Those without a value are left out. */
export function facts(pairs) {
  return h(
    "dl.facts",
    null,
    pairs
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([term, value]) => h("div.fact", null, h("dt", null, term), h("dd", null, value))),
  );
}

/** A large figure with its name. */
export function stat(label, value, { unit, note, tone, href } = {}) {
  const inside = [
    h("span.stat-label", null, label),
    h("span.stat-value", { class: tone ?? "" }, value, unit && h("span.unit", null, unit)),
    note && h("span.stat-note", null, note),
  ];
  return href ? h("a.stat", { href }, inside) : h("div.stat", null, inside);
}

export const lag = (messages, seconds) =>
  messages > 0
    ? h(
        "span",
        null,
        figure(count(messages)),
        " ",
        h("span.faint.small.nowrap", null, `· ${duration(seconds)}`),
      )
    : h("span.faint", null, "0");

export { plural };
