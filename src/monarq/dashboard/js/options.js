/* The options that a queue has, by section, and what is wrong with a value for one. The broker
   checks values again. */

import { OPTIONS } from "./queue_option_list.js";

/** [section, options] of a queue of this kind. */
export function optionsOf(kind) {
  const sections = [...new Set(OPTIONS.map((one) => one.section))];
  return sections.map((section) => [
    section,
    OPTIONS.filter((one) => one.section === section && [kind, "all"].includes(one.queues)),
  ]);
}

/** What is wrong with a value as it was typed, or null. */
export function wrong(text, { type, least, most }) {
  if (type === "str") return null;
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) return "This must be a number.";
  if (type === "int" && !Number.isInteger(value)) return "This must be a whole number.";
  if (value < least || value > most) return `This must be between ${least} and ${most}.`;
  return null;
}
