/* Questions before something is done, small forms, and short notices of what was done. Native
   dialogs: the browser keeps the focus inside, and gives it back. */

import { h, fill } from "./dom.js";

/** Shows a dialog. `content(close)` gives its children; resolves with what `close` was given. */
export function show(content, { wide = false, label } = {}) {
  return new Promise((resolve) => {
    const dialog = h("dialog.dialog", { class: wide ? "dialog-wide" : "", "aria-label": label });
    let answer = null;
    const close = (value) => {
      answer = value;
      dialog.close();
    };
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    fill(dialog, content(close));
    dialog.showModal();
  });
}

/** Asks before something that cannot be taken back, or not easily.
    `losses`: sentences that say what goes, or `losses(values)` gives them for what the fields
    hold. `typed`: what must be typed first. `act(values)` does it; its error is shown, and the
    dialog stays. Resolves true if it was done. */
export function confirm({
  title,
  text,
  losses = [],
  fields = [],
  typed,
  action,
  danger = false,
  act,
}) {
  const varies = typeof losses === "function";
  return form({
    title,
    intro: [text && h("p.soft", null, text), varies ? null : listed(losses)],
    fields: typed
      ? [
          ...fields,
          {
            name: "typed",
            label: ["Type ", h("b.name.mono", { dir: "auto" }, typed), " to go on"],
            check: (value) => (value === typed ? null : "That is not the name."),
          },
        ]
      : fields,
    action,
    danger,
    act,
    preview: varies ? (values) => listed(losses(values)) : undefined,
  }).then((done) => done !== null);
}

function listed(losses) {
  if (!losses.length) return null;
  return h(
    "ul.losses",
    null,
    losses.map((loss) => h("li", null, loss)),
  );
}

/** A dialog with fields. A field: { name, label, kind, value, options, hint, check, required }.
    `check(value, all)` gives what is wrong, or null. `act(values)` does it; what it returns is the
    dialog's answer. `preview(values)` may give something to show below, as values change. */
export function form({ title, intro, fields, action, danger = false, wide = false, act, preview }) {
  return show(
    (close) => {
      const controls = new Map();
      const problems = new Map();
      const fault = h("p.form-fault", { role: "alert", hidden: true });
      const shown = h("div.form-preview", { "aria-live": "polite" });
      const submit = h(
        `button.button${danger ? ".button-danger" : ".button-main"}`,
        { type: "submit" },
        action,
      );
      const values = () =>
        Object.fromEntries(
          [...controls].map(([name, control]) => [
            name,
            control.type === "checkbox" ? control.checked : control.value,
          ]),
        );

      let asked = 0;
      const refresh = async () => {
        for (const one of fields) {
          const row = controls.get(one.name).closest(".field");
          if (one.when) row.hidden = !one.when(values());
        }
        if (!preview) return;
        const mine = ++asked;
        let found;
        try {
          found = await preview(values());
        } catch (error) {
          found = h("p.bad", null, error.message);
        }
        if (mine === asked) fill(shown, found);
      };

      const invalid = (all) => {
        let first = null;
        for (const one of fields) {
          const skipped = one.when && !one.when(all);
          const value = all[one.name];
          let wrong = null;
          if (!skipped) {
            if (one.required && value === "") wrong = "Needed.";
            else wrong = one.check?.(value, all) ?? null;
          }
          const problem = problems.get(one.name);
          problem.textContent = wrong ?? "";
          problem.hidden = !wrong;
          controls.get(one.name).toggleAttribute("aria-invalid", Boolean(wrong));
          if (wrong && !first) first = controls.get(one.name);
        }
        first?.focus();
        return Boolean(first);
      };

      const send = async (event) => {
        event.preventDefault();
        const all = values();
        if (invalid(all)) return;
        submit.disabled = true;
        fault.hidden = true;
        try {
          close((await act(all)) ?? true);
        } catch (error) {
          fault.textContent = error.message;
          fault.hidden = false;
        } finally {
          submit.disabled = false;
        }
      };

      const body = h(
        "form.dialog-form",
        { onsubmit: send, oninput: refresh, novalidate: true },
        h("h2", null, title),
        intro,
        fields.map((one) => {
          const { row, control, problem } = field(one);
          controls.set(one.name, control);
          problems.set(one.name, problem);
          return row;
        }),
        shown,
        fault,
        h(
          "div.dialog-buttons",
          null,
          h("button.button", { type: "button", onclick: () => close(null) }, "Cancel"),
          submit,
        ),
      );
      queueMicrotask(refresh);
      return body;
    },
    { wide, label: title },
  );
}

let fieldNumber = 0;

function field(one) {
  const id = `field-${++fieldNumber}`;
  const describedBy = `${id}-note`;
  const shared = { id, name: one.name, "aria-describedby": describedBy, autocomplete: "off" };
  let control;
  if (one.kind === "choice") {
    control = h(
      "select.input",
      { ...shared, value: one.value },
      one.options.map(([value, label]) =>
        h("option", { value, selected: value === one.value }, label),
      ),
    );
  } else if (one.kind === "text") {
    control = h("textarea.input.mono", {
      ...shared,
      rows: one.rows ?? 8,
      spellcheck: "false",
      value: one.value ?? "",
    });
  } else if (one.kind === "switch") {
    control = h("input", { ...shared, type: "checkbox", checked: Boolean(one.value) });
  } else {
    control = h("input.input", {
      ...shared,
      type: one.kind ?? "text",
      step: one.step,
      value: one.value ?? "",
      list: one.suggestions && `${id}-list`,
      placeholder: one.placeholder,
      spellcheck: "false",
    });
  }
  const problem = h("p.field-problem", { hidden: true, role: "alert" });
  const row = h(
    "div.field",
    { class: one.kind === "switch" ? "field-switch" : "" },
    h("label", { for: id }, one.label),
    h("div.field-control", null, control, one.unit && h("span.field-unit", null, one.unit)),
    one.suggestions &&
      h(
        "datalist",
        { id: `${id}-list` },
        one.suggestions.map((value) => h("option", { value })),
      ),
    h("p.field-hint", { id: describedBy }, one.hint ?? ""),
    problem,
  );
  return { row, control, problem };
}

/** A short notice at the edge of the page. */
export function notice(text, { bad = false } = {}) {
  const place = document.getElementById("notices");
  const item = h(
    `div.notice${bad ? ".notice-bad" : ""}`,
    null,
    h("span", null, text),
    h(
      "button.icon-button",
      { type: "button", "aria-label": "Close", onclick: () => item.remove() },
      "×",
    ),
  );
  place.append(item);
  setTimeout(() => item.remove(), bad ? 12_000 : 6_000);
}
