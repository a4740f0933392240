/* What the store says of itself, whatever it says: names and units are read from the keys. */

import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { facts, panel, plainTable, size, when } from "./parts.js";

const BYTES = /(bytes|size)$/i;
const UNIT = /(_bytes|Bytes|_seconds|Seconds)$/;
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:/;
const SECONDS = /(seconds|_age|Age)$/;

export function storePanel({ kind, figures }) {
  const plain = Object.entries(figures).filter(
    ([, value]) => value === null || typeof value !== "object",
  );
  const tables = Object.entries(figures).filter(
    ([, value]) => value !== null && typeof value === "object",
  );
  return panel(
    kind === "sqlite" ? "SQLite" : "PostgreSQL",
    {},
    facts(plain.map(([key, value]) => [words(key), shown(key, value)])),
    tables.map(([key, value]) => sub(words(key), value)),
  );
}

function sub(title, value) {
  const rows = Array.isArray(value)
    ? value
    : Object.entries(value).map(([key, inside]) =>
        inside !== null && typeof inside === "object"
          ? { name: key, ...inside }
          : { name: key, value: inside },
      );
  if (!rows.length) return null;
  const keys = Object.keys(rows[0]);
  return h(
    "div.stack",
    { key: title },
    h("h3", null, title),
    plainTable(
      title,
      keys.map((key) => [words(key), numeric(rows, key) ? "num" : null]),
      rows.map((row, index) =>
        h(
          "tr",
          { key: index },
          keys.map((key) =>
            h("td", { class: numeric(rows, key) ? "num" : null }, shown(key, row[key])),
          ),
        ),
      ),
    ),
  );
}

export const words = (key) => {
  const text = key
    .replace(UNIT, "")
    .replaceAll("_", " ")
    .replaceAll(/([a-z])([A-Z])/g, "$1 $2")
    .toLowerCase();
  return text.charAt(0).toUpperCase() + text.slice(1);
};

function shown(key, value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string" && ISO_TIME.test(value)) return when(value);
  if (typeof value !== "number")
    return typeof value === "object"
      ? JSON.stringify(value)
      : h("span.name", { dir: "auto" }, value);
  if (BYTES.test(key)) return size(value);
  if (SECONDS.test(key) && !/xmin|xid/i.test(key)) return duration(value);
  return Number.isInteger(value) ? count(value) : String(Math.round(value * 1000) / 1000);
}

const numeric = (rows, key) =>
  rows.every((row) => typeof row[key] === "number" || row[key] === null) &&
  rows.some((row) => typeof row[key] === "number");

/** Steps of whole binary units. */
export function byteTicks(most, wanted) {
  let step = 1024;
  while (most / step > wanted) step *= step * 2 > most ? 1.25 : 2;
  const steps = [];
  for (let at = 0; at < most + step; at += step) steps.push(at);
  return steps;
}
