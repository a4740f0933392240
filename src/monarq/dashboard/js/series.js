/* Reads what the broker says of time, for charts. */

export const RANGES = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
  ["30d", "30 d"],
];

/** The points of a series as milliseconds, with the ends of its range. */
export function times(series) {
  return {
    times: series.times.map(Date.parse),
    from: Date.parse(series.from),
    to: Date.parse(series.to),
  };
}
