/* A payload as people read it: formatted, coloured, searchable. It is one text node; colours and
   finds are ranges over it, so nothing that came from a message is ever markup. */

import { h, island } from "./dom.js";
import { bytes } from "./format.js";
import { later } from "./timing.js";

const COLOURED = 200_000;
const FINDS = 2_000;
const TOKEN =
  /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
const highlights = globalThis.CSS?.highlights;

// Characters that turn the direction of what follows would make the text read otherwise than it is.
const TURNING = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const BRIEF = 600;
const NOTHING = Symbol("nothing yet");

export function formatted(value) {
  const text = JSON.stringify(value, null, 2) ?? String(value);
  return text.replace(
    TURNING,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const inlined = new WeakMap();
const INLINE = 200;

/** The data of a row in one line, for a cell of a table. Made once: rows are drawn often. */
export function inline(row) {
  if (!inlined.has(row)) {
    const text = JSON.stringify(row.data) ?? "";
    inlined.set(row, text.length > INLINE ? `${text.slice(0, INLINE)}…` : text);
  }
  return inlined.get(row);
}

/** `value`: any JSON value. */
export function payload(key, value, { small = false, label = "Payload" } = {}) {
  return island("div.payload", key, { value, small, label }, makePayload);
}

function makePayload(element) {
  const names = { key: [], string: [], number: [], word: [] };
  const own = new Map();
  let shown = null;
  let label = "";
  let finds = [];
  let at = 0;
  const text = h("pre.payload-text", { tabindex: "0" });
  const box = h("input.input.search", {
    type: "search",
    placeholder: "Search in it",
    autocomplete: "off",
    spellcheck: "false",
  });
  const found = h("span.faint.small", { "aria-live": "polite" });
  const note = h("span.faint.small");
  const copy = h("button.button.button-small", { type: "button" }, "Copy");
  const step = (by) => () => {
    if (finds.length) point((at + by + finds.length) % finds.length);
  };
  const before = h(
    "button.button.button-small",
    { type: "button", "aria-label": "Previous find", onclick: step(-1) },
    "↑",
  );
  const after = h(
    "button.button.button-small",
    { type: "button", "aria-label": "Next find", onclick: step(1) },
    "↓",
  );
  element.append(
    h("div.payload-bar", null, box, before, after, found, h("span.toolbar-end", null, note, copy)),
    text,
  );

  // Highlights are shared by the whole document: each viewer adds and removes its own ranges.
  const paint = (name, ranges) => {
    if (!highlights) return;
    for (const range of own.get(name) ?? []) highlights.get(name)?.delete(range);
    own.set(name, ranges);
    if (!highlights.has(name)) highlights.set(name, new Highlight());
    for (const range of ranges) highlights.get(name).add(range);
  };

  const span = (from, to) => {
    const range = new Range();
    range.setStart(text.firstChild, from);
    range.setEnd(text.firstChild, to);
    return range;
  };

  const colour = () => {
    for (const list of Object.values(names)) list.length = 0;
    if (highlights && shown && shown.length <= COLOURED) {
      for (const match of shown.matchAll(TOKEN)) {
        const [, string, colon, number] = match;
        const kind = string ? (colon ? "key" : "string") : number ? "number" : "word";
        names[kind].push(span(match.index, match.index + (string ?? match[0]).length));
      }
    }
    for (const [kind, ranges] of Object.entries(names)) paint(`json-${kind}`, ranges);
  };

  const point = (index) => {
    at = index;
    found.textContent = finds.length
      ? `${index + 1} of ${finds.length}${finds.length === FINDS ? "+" : ""}`
      : "not found";
    paint("found-here", finds.length ? [finds[index]] : []);
    const place = finds[index]?.getBoundingClientRect();
    if (!place) return;
    const frame = text.getBoundingClientRect();
    if (place.top < frame.top || place.bottom > frame.bottom) {
      text.scrollTop += place.top - frame.top - frame.height / 2;
    }
  };

  const seek = () => {
    finds = [];
    const wanted = box.value.toLowerCase();
    const whole = shown.toLowerCase();
    // A text whose length changes with its case cannot be searched by position.
    const within = whole.length === shown.length ? whole : shown;
    for (
      let from = within.indexOf(wanted);
      wanted && from >= 0 && finds.length < FINDS;
      from = within.indexOf(wanted, from + wanted.length)
    ) {
      finds.push(span(from, from + wanted.length));
    }
    paint("found", finds);
    if (wanted) point(0);
    else {
      found.textContent = "";
      paint("found-here", []);
    }
  };

  box.addEventListener("input", later(120, seek));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    step(event.shiftKey ? -1 : 1)();
  });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(shown);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      copy.textContent = "Selected";
    }
  });
  element.$leave = () => {
    for (const name of own.keys()) paint(name, []);
  };

  let last = NOTHING;
  return (props) => {
    if (props.value === last) return;
    last = props.value;
    const next = formatted(props.value);
    element.classList.toggle("payload-small", props.small);
    element.classList.toggle("payload-brief", props.small && next.length < BRIEF);
    if (props.label !== label) {
      label = props.label;
      text.setAttribute("aria-label", label);
      text.setAttribute("role", "group");
      box.setAttribute("aria-label", `Search in: ${label}`);
    }
    if (next === shown) return;
    shown = next;
    text.textContent = shown;
    note.textContent = bytes(new Blob([shown]).size);
    copy.textContent = "Copy";
    colour();
    if (box.value) seek();
  };
}
