/* Pictures of figures: lines, areas, stacks, bars, sparklines and meters, as SVG.

   A chart is an island: it follows the width of its place, shows a readout where the pointer or
   the arrow keys are, and says in words what it shows. It knows nothing of where figures come
   from. */

import { h, island } from "./dom.js";
import { clock, day, exact } from "./format.js";

const MARGIN = { top: 10, right: 12, bottom: 22 };
const LETTER = 6.2;
const DAY = 86_400_000;

/** Round steps that cover 0 … `most` in about `wanted` steps. */
export function ticks(most, wanted = 4) {
  if (!(most > 0)) return [0, 1];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let at = 0; at < most + step * 0.999; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

const SPANS = [
  ...[-6, -5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power)),
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800],
  ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * 3600),
];

/** The same for durations in seconds: whole minutes, hours and days. */
export function spanTicks(most, wanted = 4) {
  if (!(most > 0)) return [0, 1];
  const step = SPANS.find((one) => most / one <= wanted) ?? 10 * 86_400 * Math.ceil(most / 3.456e6);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) =>
    Number((index * step).toPrecision(12)),
  );
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 5760, 10_080].map(
  (minutes) => minutes * 60_000,
);

function timeTicks(from, to, wanted) {
  const step = TIME_STEPS.find((one) => (to - from) / one <= wanted) ?? TIME_STEPS.at(-1);
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) found.push(at);
  return { step, found };
}

const timeLabel = (time, step) => (step >= DAY ? day(time) : clock(time));

/** `times`: milliseconds, one a point. `series`: [{ name, tone, values }]; a value may be null.
    `kind`: "line", "area", "stack" or "bars". `format`: a figure with its unit. */
export function timeChart(key, props) {
  return island("div.chart", key, props, makeTimeChart);
}

function makeTimeChart(element) {
  let props = null;
  let at = null;
  let scale = null;
  const readout = h("div.chart-readout", { hidden: true });
  const spoken = h("div.hidden-text", { "aria-live": "polite" });
  const plot = h("div.chart-plot", { tabindex: "0", role: "img" });
  element.append(plot, readout, spoken);

  const redraw = () => {
    if (!props || !plot.clientWidth) return;
    scale = scaled(props, plot.clientWidth, props.height ?? 180);
    plot.replaceChildren(drawing(props, scale));
    point(at === null ? null : Math.min(at, props.times.length - 1));
  };

  const point = (index, speak = false) => {
    at = index;
    plot.querySelector(".chart-cross")?.remove();
    readout.hidden = index === null || !props.times.length;
    if (readout.hidden) return;
    const x = scale.x(props.times[index]);
    plot.firstChild.append(crossing(props, scale, index, x));
    const rows = props.series.map((one) => ({ one, text: said(props, one.values[index]) }));
    readout.replaceChildren(
      h("div.chart-readout-time", null, exact(props.times[index]).slice(0, 16)),
      ...rows.map(({ one, text }) =>
        h(
          "div.chart-readout-row",
          null,
          h(`span.swatch.tone-${one.tone}`),
          one.name,
          h("b", null, text),
        ),
      ),
    );
    const width = readout.offsetWidth;
    const left = x + 14 + width > plot.clientWidth ? x - 14 - width : x + 14;
    readout.style.setProperty("left", `${Math.max(0, left)}px`);
    if (speak) {
      spoken.textContent = `${exact(props.times[index]).slice(0, 16)}: ${rows
        .map(({ one, text }) => `${one.name} ${text}`)
        .join(", ")}`;
    }
  };

  plot.addEventListener("pointermove", (event) => {
    if (scale && props.times.length) point(nearest(props.times, scale.timeAt(event.offsetX)));
  });
  plot.addEventListener("pointerleave", () => point(null));
  plot.addEventListener("blur", () => point(null));
  plot.addEventListener("keydown", (event) => {
    const last = props.times.length - 1;
    const from = at ?? last;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") point(null);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    point(
      at === null && event.key.startsWith("Arrow") ? last : Math.max(0, Math.min(last, to)),
      true,
    );
  });

  const observer = new ResizeObserver(redraw);
  observer.observe(plot);
  element.$leave = () => observer.disconnect();
  return (next) => {
    props = next;
    plot.setAttribute("aria-label", summary(props));
    plot.style.setProperty("height", `${props.height ?? 180}px`);
    redraw();
  };
}

function said(props, value) {
  return value === null || value === undefined ? "no data" : props.format(value);
}

function summary(props) {
  const now = props.series.map((one) => {
    const last = one.values.findLast((value) => value !== null);
    return `${one.name} ${said(props, last)}`;
  });
  return `${props.label}. Latest: ${now.join(", ")}. Arrow keys read the points.`;
}

function nearest(times, time) {
  let low = 0;
  let high = times.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] > time) high = middle;
    else low = middle;
  }
  return time - times[low] < times[high] - time ? low : high;
}

function scaled(props, width, height) {
  const { times, series } = props;
  const stacked = props.kind === "stack" || props.kind === "bars";
  let most = props.least ?? 0;
  times.forEach((_, index) => {
    const here = series.map((one) => one.values[index] ?? 0);
    most = Math.max(most, stacked ? here.reduce((a, b) => a + b, 0) : Math.max(0, ...here));
  });
  const steps = (props.ticks ?? ticks)(most, height < 120 ? 2 : 4);
  const top = steps.at(-1);
  const from = props.from ?? times[0] ?? 0;
  const to = props.to ?? times.at(-1) ?? 1;
  const label = props.axis ?? props.format;
  const left = 14 + Math.max(24, ...steps.map((one) => label(one).length * LETTER));
  const inner = width - left - MARGIN.right;
  const span = Math.max(1, to - from);
  return {
    width,
    height,
    left,
    label,
    steps,
    from,
    to,
    x: (time) => left + ((time - from) / span) * inner,
    y: (value) => height - MARGIN.bottom - (value / top) * (height - MARGIN.top - MARGIN.bottom),
    timeAt: (x) => from + ((x - left) / inner) * span,
    slot: times.length > 1 ? inner / (times.length - 1) : inner,
  };
}

function drawing(props, scale) {
  const { width, height } = scale;
  const base = height - MARGIN.bottom;
  const { step, found } = timeTicks(scale.from, scale.to, Math.max(2, width / 90));
  return h(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    scale.steps.map((value) => [
      h("line.chart-grid", {
        x1: scale.left,
        x2: width - MARGIN.right,
        y1: scale.y(value),
        y2: scale.y(value),
      }),
      h(
        "text.chart-label",
        { x: scale.left - 8, y: scale.y(value) + 4, "text-anchor": "end" },
        scale.label(value),
      ),
    ]),
    found.map((time) =>
      h(
        "text.chart-label",
        { x: scale.x(time), y: height - 5, "text-anchor": "middle" },
        timeLabel(time, step),
      ),
    ),
    h("line.chart-base", { x1: scale.left, x2: width - MARGIN.right, y1: base, y2: base }),
    shapes(props, scale),
    (props.marks ?? []).map((mark) =>
      h("line.chart-mark", { x1: scale.x(mark), x2: scale.x(mark), y1: MARGIN.top, y2: base }),
    ),
  );
}

function shapes(props, scale) {
  if (props.kind === "bars") return bars(props, scale);
  const under = props.times.map(() => 0);
  return props.series.map((one) => {
    const stacked = props.kind === "stack";
    const tops = one.values.map((value, index) => {
      if (value === null || value === undefined) return null;
      return stacked ? under[index] + value : value;
    });
    const runs = runsOf(props.times, tops);
    const filled = stacked || (props.kind === "area" && one.fill !== false);
    const shape = [
      filled && h(`path.chart-area.tone-${one.tone}`, { d: areaPath(runs, scale, under, stacked) }),
      h(`path.chart-line.tone-${one.tone}`, { d: linePath(runs, scale) }),
      runs
        .filter((run) => run.length === 1)
        .map(([[time, value]]) =>
          h(`circle.chart-dot.tone-${one.tone}`, { cx: scale.x(time), cy: scale.y(value), r: 2 }),
        ),
    ];
    if (stacked)
      tops.forEach((value, index) => {
        under[index] = value ?? under[index];
      });
    return shape;
  });
}

/** Stretches of points without a gap: [[time, value, index], …]. */
function runsOf(times, values) {
  const runs = [];
  let run = [];
  values.forEach((value, index) => {
    if (value === null) {
      if (run.length) runs.push(run);
      run = [];
    } else run.push([times[index], value, index]);
  });
  if (run.length) runs.push(run);
  return runs;
}

const step = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

function linePath(runs, scale) {
  return runs
    .map((run) => `M${run.map(([time, value]) => step(scale.x(time), scale.y(value))).join("L")}`)
    .join("");
}

function areaPath(runs, scale, under, stacked) {
  return runs
    .map((run) => {
      const over = run.map(([time, value]) => step(scale.x(time), scale.y(value)));
      const back = run
        .toReversed()
        .map(([time, , index]) => step(scale.x(time), scale.y(stacked ? under[index] : 0)));
      return `M${over.join("L")}L${back.join("L")}Z`;
    })
    .join("");
}

function bars(props, scale) {
  const wide = Math.max(1, Math.min(14, scale.slot * 0.7));
  return props.times.map((time, index) => {
    let under = 0;
    return props.series.map((one) => {
      const value = one.values[index] ?? 0;
      if (!value) return null;
      const y = scale.y(under + value);
      const tall = Math.max(1, scale.y(under) - y);
      under += value;
      const x = Math.max(scale.left, scale.x(time) - wide / 2);
      return h(`rect.chart-bar.tone-${one.tone}`, { x, y, width: wide, height: tall });
    });
  });
}

function crossing(props, scale, index, x) {
  let under = 0;
  const stacked = props.kind === "stack" || props.kind === "bars";
  return h(
    "g.chart-cross",
    null,
    h("line.chart-cross-line", { x1: x, x2: x, y1: MARGIN.top, y2: scale.height - MARGIN.bottom }),
    props.series.map((one) => {
      const value = one.values[index];
      if (value === null || value === undefined) return null;
      under = stacked ? under + value : value;
      return h(`circle.chart-dot.tone-${one.tone}`, { cx: x, cy: scale.y(under), r: 3.5 });
    }),
  );
}

/** A legend with the latest figure of each series. */
export function legend(series, format) {
  return h(
    "ul.legend",
    null,
    series.map((one) => {
      const last = one.values.findLast((value) => value !== null && value !== undefined);
      return h(
        "li",
        null,
        h(`span.swatch.tone-${one.tone}`),
        one.name,
        h("b", null, last === undefined ? "–" : format(last)),
      );
    }),
  );
}

/** A line without axes, as wide and high as given. */
export function sparkline(values, { tone = "in", width = 96, height = 24, label = null } = {}) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(1e-9, ...known);
  const at = (index) => (index / Math.max(1, values.length - 1)) * (width - 2) + 1;
  const runs = runsOf(
    values.map((_, index) => index),
    values.map((value) => value ?? null),
  );
  const scale = { x: at, y: (value) => height - 1.5 - (value / most) * (height - 3) };
  return h(
    "svg.spark",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }),
    },
    h(`path.chart-area.tone-${tone}`, { d: areaPath(runs, scale, [], false) }),
    h(`path.chart-line.tone-${tone}`, { d: linePath(runs, scale) }),
  );
}

/** A bar that shows a part of a whole, beside a figure. */
export function meter(part, { tone = "in", label = null } = {}) {
  const width = `${Math.max(part > 0 ? 2 : 0, Math.min(100, part * 100))}%`;
  return h(
    "span.meter",
    label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" },
    h(`span.meter-fill.tone-${tone}`, { style: { width } }),
  );
}
