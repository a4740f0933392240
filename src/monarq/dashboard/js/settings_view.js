/* The settings in force, searched and grouped. */

import { h } from "./dom.js";
import { plural } from "./format.js";
import { empty, panel, plainTable, search, sentence } from "./parts.js";

const told = (value) =>
  value === null || value === ""
    ? "–"
    : Array.isArray(value)
      ? value.join(", ") || "–"
      : String(value);

export function settingsView(ctx) {
  let find = "";
  let changedOnly = false;

  return function render(settings) {
    if (!ctx.can("admin"))
      return empty("Settings are for administrators.", "Your role does not allow to see them.");
    if (!settings) return h("p.loading", { role: "status" }, "Loading…");
    const text = find.toLowerCase();
    const all = settings.filter(
      (one) =>
        (!changedOnly || !one.isDefault) &&
        `${one.name} ${one.description}`.toLowerCase().includes(text),
    );
    const groups = Map.groupBy(all, (one) => one.group);
    return [
      h(
        "div.toolbar",
        null,
        search("Search settings", find, (value) => {
          find = value;
          ctx.redraw();
        }),
        h(
          "label.select",
          null,
          h("input", {
            type: "checkbox",
            checked: changedOnly,
            onchange: (event) => {
              changedOnly = event.target.checked;
              ctx.redraw();
            },
          }),
          h("span.select-label", null, "only what was changed"),
        ),
        h("div.toolbar-end.faint.small", { "aria-live": "polite" }, plural(all.length, "setting")),
      ),
      [...groups].map(([title, rows]) =>
        panel(
          title,
          {},
          plainTable(
            title,
            [["Setting"], ["In force"], ["Default", "hide-1"], ["What it does", "hide-1"]],
            rows.map((one) =>
              h(
                "tr",
                { key: one.name },
                h("td.setting-name", { title: `${one.flag} · ${one.variable}` }, one.name),
                h(
                  "td.mono.small",
                  null,
                  one.secret
                    ? one.value
                      ? "set, not shown"
                      : "not set"
                    : one.isDefault
                      ? told(one.value)
                      : h("b.warn", null, told(one.value)),
                ),
                h("td.mono.small.faint.hide-1", null, one.secret ? "" : told(one.default)),
                h("td.small.soft.hide-1", null, sentence(one.description)),
              ),
            ),
            "table.plain.settings",
          ),
        ),
      ),
      !all.length && empty("No setting matches."),
    ];
  };
}
