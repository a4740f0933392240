/* The frame around every page: navigation, health of the connection, theme, who is signed in. */

import { h } from "./dom.js";
import { short } from "./format.js";
import { link } from "./router.js";

export const SECTIONS = [
  ["overview", "Overview", "M3 12l4-5 4 3 6-7"],
  ["queues", "Queues", "M3 5h14M3 10h14M3 15h9"],
  ["messages", "Messages", "M3 5h14v10H3zM3 6l7 5 7-5"],
  [
    "groups",
    "Groups",
    "M7 9a3 3 0 100-6 3 3 0 000 6zM2 17c0-4 10-4 10 0M14 8a2.500 2.500 0 100-5M14 12c3 0 4 2 4 5",
  ],
  ["dead-letters", "Dead letters", "M10 3l8 14H2zM10 8v4M10 14.500v.5"],
  ["jobs", "Jobs", "M3 6h14v11H3zM7 6V3h6v3M3 11h14"],
  ["pipeline", "Pipeline", "M3 5h5v4H3zM12 11h5v4h-5zM8 7h3v6h1"],
  [
    "system",
    "System",
    "M10 13a3 3 0 100-6 3 3 0 000 6zM10 2v3M10 15v3M2 10h3M15 10h3M4.300 4.300l2.200 2.200M13.500 13.500l2.200 2.200M4.300 15.700l2.200-2.200M13.500 6.500l2.200-2.200",
  ],
];

const CONNECTION = {
  live: ["Live", "ok"],
  polling: ["Polling", "warn"],
  connecting: ["Connecting…", "quiet"],
  offline: ["Broker unreachable", "bad"],
};

function mark() {
  const wing = [
    "M15 14 3.5 4C8 2.600 13 4 15 9.200z",
    "M14.600 15.700 2.600 6.300c-.8 4.200.6 8.200 5 9.600z",
    "M14.700 17.300l-6.900-.2c-2.700.9-3 4.300-1 6.800 1.600 1.700 3.600 2 5 .7z",
  ];
  return h(
    "svg.mark",
    { viewBox: "0 0 32 28", width: 30, height: 26, "aria-hidden": "true" },
    wing.map((d) => h("path", { d })),
    h(
      "g",
      { transform: "matrix(-1 0 0 1 32 0)" },
      wing.map((d) => h("path", { d })),
    ),
    h("line", { x1: 16, x2: 16, y1: 8, y2: 25 }),
  );
}

/** `model`: { section, overview, connection, session, menuOpen }; `act`: what its buttons do. */
export function frame(model, act, main) {
  return [
    h(
      "header.bar",
      { key: "bar" },
      h(
        "button.icon-button.menu-button",
        {
          type: "button",
          "aria-expanded": String(model.menuOpen),
          "aria-controls": "navigation",
          onclick: act.menu,
        },
        h("span.hidden-text", null, "Menu"),
        h("span", { "aria-hidden": "true" }, "☰"),
      ),
      h(
        "a.brand",
        { href: link(["overview"]), "aria-label": "Monarq, overview" },
        mark(),
        h("span", null, "Monarq"),
      ),
      h(
        "form.go",
        { role: "search", onsubmit: act.find },
        h("input.input", {
          type: "search",
          id: "go",
          name: "go",
          "aria-label": "Go to a queue, group or message",
          autocomplete: "off",
          placeholder: "Go to a queue, group or message id",
          spellcheck: "false",
          list: "go-list",
          oninput: act.suggest,
        }),
        h(
          "datalist",
          { id: "go-list" },
          model.suggestions.map((value) => h("option", { value })),
        ),
      ),
      connection(model.connection),
      h(
        "button.icon-button",
        {
          type: "button",
          onclick: act.theme,
          "aria-label": `Theme: ${model.theme}. Change it.`,
          title: `Theme: ${model.theme}`,
        },
        h("span", { "aria-hidden": "true" }, { auto: "◐", light: "○", dark: "●" }[model.theme]),
      ),
      who(model, act),
    ),
    h(
      "nav.side",
      {
        key: "side",
        id: "navigation",
        "aria-label": "Sections",
        class: model.menuOpen ? "side-open" : "",
      },
      h(
        "ul",
        null,
        SECTIONS.map(([key, label, path]) => {
          const badge = badges(key, model.overview);
          return h(
            "li",
            { key },
            h(
              "a.side-link",
              { href: link([key]), "aria-current": key === model.section ? "page" : null },
              h(
                "svg",
                { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" },
                h("path", { d: path }),
              ),
              h("span", null, label),
              badge &&
                h(
                  "span.badge",
                  { class: `badge-${badge.tone}`, title: badge.title },
                  badge.text,
                  h("span.hidden-text", null, ` ${badge.title}`),
                ),
            ),
          );
        }),
      ),
      h(
        "div.side-foot",
        null,
        model.overview && h("p", null, `Monarq ${model.overview.version}`),
        h(
          "p",
          null,
          h("a", { href: "/docs" }, "API reference"),
          " · ",
          h("a", { href: "/metrics/prometheus" }, "Metrics"),
        ),
      ),
    ),
    main,
  ];
}

function badges(key, overview) {
  if (!overview) return null;
  const { totals, attention, lag, workers } = overview;
  const serious = attention.filter((one) => one.severity !== "notice").length;
  if (key === "overview" && serious) return { text: serious, tone: "bad", title: "need attention" };
  if (key === "dead-letters" && totals.deadLetters)
    return { text: short(totals.deadLetters), tone: "quiet", title: "dead letters" };
  if (key === "groups" && lag.groupsBehind)
    return { text: lag.groupsBehind, tone: "quiet", title: "groups are behind" };
  if (key === "jobs" && workers.lost)
    return { text: workers.lost, tone: "bad", title: "workers are lost" };
  return null;
}

function connection(state) {
  const [text, tone] = CONNECTION[state];
  return h(
    "div.connection",
    { class: `connection-${tone}`, role: "status", "data-state": state },
    h("span.connection-dot", { "aria-hidden": "true" }),
    h("span.connection-text", null, text),
  );
}

function who(model, act) {
  if (!model.session.auth) return null;
  return h(
    "div.who",
    null,
    h(
      "span.who-name",
      { title: `Signed in as ${model.session.subject}, role ${model.session.role}` },
      h("span.name", { dir: "auto" }, model.session.subject ?? "signed in"),
      " ",
      h("span.faint", null, model.session.role),
    ),
    h("button.button.button-small", { type: "button", onclick: act.signOut }, "Sign out"),
  );
}

/** Where there is no session: the token, and nothing of the broker's. */
export function signIn({ fault, busy }, submit) {
  return h(
    "main.sign-in",
    { id: "main", tabindex: "-1" },
    h(
      "form.sign-in-card",
      { onsubmit: submit },
      h("div.sign-in-brand", null, mark(), h("h1", null, "Monarq")),
      h("p.soft", null, "This broker asks who you are. Paste an API key or a token."),
      h(
        "div.field",
        null,
        h("label", { for: "token" }, "API key or token"),
        h("input.input", {
          id: "token",
          name: "token",
          type: "password",
          autocomplete: "current-password",
          required: true,
        }),
      ),
      fault && h("p.form-fault", { role: "alert" }, fault),
      h(
        "button.button.button-main",
        { type: "submit", disabled: busy },
        busy ? "Signing in…" : "Sign in",
      ),
      h(
        "p.faint.small",
        null,
        "It is kept by the browser as a cookie that no script can read, until you sign out. Make a key with ",
        h("code", null, "monarq api-key create"),
        ".",
      ),
    ),
  );
}
