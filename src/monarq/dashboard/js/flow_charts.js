/* How messages flowed over time, of the whole broker or of one queue. */

import { legend, spanTicks, ticks, timeChart } from "./chart.js";
import { h } from "./dom.js";
import { count, duration, rate, short } from "./format.js";
import { choice, panel } from "./parts.js";
import { times } from "./series.js";

const MEASURES = [
  ["time", "time"],
  ["messages", "messages"],
];
const perSecond = (value) => `${rate(value)}/s`;

/** `measure`: whether lag is shown as time or as messages; `onmeasure` when somebody asks for the
    other. */
export function flowCharts(series, { measure, onmeasure }) {
  const shared = times(series);
  const flow = [
    { name: "in", tone: "in", values: series.in },
    { name: "out", tone: "out", values: series.out, fill: false },
  ];
  const latency = ["p50", "p95", "p99"].map((one) => ({
    name: one,
    tone: one,
    values: series[one],
  }));
  const errors = [
    { name: "failed", tone: "failed", values: series.failed },
    { name: "dead", tone: "dead", values: series.dead },
  ];
  return h(
    "div.columns",
    null,
    picture("Throughput", flow, perSecond, {
      ...shared,
      kind: "area",
      axis: short,
      label: "Messages in and out per second",
    }),
    picture("End-to-end latency", latency, duration, {
      ...shared,
      kind: "line",
      ticks: spanTicks,
      label: "Time from push to completed",
    }),
    lag(series, shared, measure, onmeasure),
    picture("Failures", errors, perSecond, {
      ...shared,
      kind: "bars",
      axis: short,
      label: "Failed and dead per second",
    }),
  );
}

function lag(series, shared, measure, onmeasure) {
  const byTime = measure === "time";
  const all = byTime
    ? [{ name: "slowest group", tone: "lag", values: series.lagSeconds }]
    : [{ name: "pending", tone: "lag", values: series.pending }];
  const props = {
    ...shared,
    kind: "area",
    axis: byTime ? duration : short,
    ticks: byTime ? spanTicks : ticks,
    label: byTime ? "How far the slowest group is behind" : "Messages that wait",
  };
  return picture("Lag", all, byTime ? duration : count, props, [
    choice("Lag as", MEASURES, measure, onmeasure),
  ]);
}

function picture(title, series, format, props, more = null) {
  return panel(
    title,
    { actions: [legend(series, format), more] },
    timeChart(title, { ...props, series, format }),
  );
}
