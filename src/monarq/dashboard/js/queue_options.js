/* Edits the options of a queue: only what was changed is sent. */

import { post } from "./api.js";
import { notice } from "./dialog.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { optionsOf, wrong } from "./options.js";
import { panel } from "./parts.js";

export function optionsEditor(queue, ctx) {
  let detail = null;
  let edits = {};
  let fault = null;

  const typed = (key) => (key in edits ? edits[key] : detail.options[key]);
  const problem = (option) =>
    option.name in edits && option.type !== "bool"
      ? wrong(String(edits[option.name]), option)
      : null;
  const sections = () =>
    optionsOf(detail.line.kind).map(([title, all]) => [
      title,
      all.filter((option) => option.name in detail.options),
    ]);
  const shown = () => sections().flatMap(([, all]) => all);

  const change = (key, value) => {
    edits[key] = value;
    if (String(value) === String(detail.options[key])) delete edits[key];
    fault = null;
    ctx.redraw();
  };

  const save = async (event) => {
    event.preventDefault();
    if (shown().some(problem)) return;
    const options = Object.fromEntries(
      shown()
        .filter(({ name }) => name in edits)
        .map(({ name, type }) => [
          name,
          ["int", "float"].includes(type) ? Number(edits[name]) : edits[name],
        ]),
    );
    try {
      const answer = await post("configure", { queue, options });
      detail = { ...detail, options: answer.options };
      edits = {};
      notice(`Saved: ${Object.keys(options).join(", ")}.`);
    } catch (error) {
      fault = error.message;
    }
    ctx.redraw();
  };

  function field(option) {
    const { name: key, label, type, unit } = option;
    const id = `option-${key}`;
    const value = typed(key);
    const bad = problem(option);
    const note = `${id}-note`;
    const shared = { id, "aria-describedby": note, disabled: !ctx.can("write") };
    const control =
      type === "bool"
        ? h("input", {
            ...shared,
            type: "checkbox",
            checked: Boolean(value),
            onchange: (event) => change(key, event.target.checked),
          })
        : h("input.input", {
            ...shared,
            type: type === "str" ? "text" : "number",
            step: type === "float" ? "any" : "1",
            value: String(value),
            autocomplete: "off",
            "aria-invalid": bad ? "true" : null,
            oninput: (event) => change(key, event.target.value),
          });
    const readable = unit === "s" && Number(value) >= 60 ? duration(Number(value)) : null;
    return h(
      "div.field",
      {
        key,
        class: [type === "bool" ? "field-switch" : "", key in edits ? "changed" : ""]
          .join(" ")
          .trim(),
      },
      h("label", { for: id }, label),
      h(
        "div.field-control",
        null,
        control,
        unit && h("span.field-unit", null, unit, readable && ` = ${readable}`),
      ),
      h("p.field-hint", { id: note }, option.hint),
      bad && h("p.field-problem", { role: "alert" }, bad),
    );
  }

  return {
    take(next) {
      detail = next;
    },
    render() {
      const changed = Object.keys(edits).length;
      return panel(
        "Options",
        { note: ctx.can("write") ? null : "Your role may look, not change." },
        h(
          "form",
          { onsubmit: save, novalidate: true },
          h(
            "div.options",
            null,
            sections().map(([title, all]) => [
              h("h3.options-group", { key: title }, title),
              all.map(field),
            ]),
          ),
          fault && h("p.form-fault", { role: "alert" }, fault),
          ctx.can("write") &&
            h(
              "div.dialog-buttons",
              null,
              h(
                "button.button",
                {
                  type: "button",
                  disabled: !changed,
                  onclick: () => {
                    edits = {};
                    fault = null;
                    ctx.redraw();
                  },
                },
                "Undo",
              ),
              h(
                "button.button.button-main",
                { type: "submit", disabled: !changed },
                changed ? `Save ${changed} change${changed > 1 ? "s" : ""}` : "Save",
              ),
            ),
        ),
      );
    },
  };
}
