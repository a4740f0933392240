/* Starts the dashboard, opens the page that the address names, and keeps it current.

   A page is a module with `open(ctx)`, which gives { title, crumbs, topics, follow, load, render,
   actions, leave }: `load` fetches, `render` describes what is shown, `topics` are handlers of live
   events, and `streaming` is called when a stream begins, whose first events are whole. Pages are
   fetched when they are first opened. */

import { ApiError, get, post, remove, setCsrf, watch } from "./api.js";
import { notice } from "./dialog.js";
import { fill, h } from "./dom.js";
import { enterByLink, isEntering } from "./entering.js";
import { find, suggestions } from "./finding.js";
import { Live } from "./live.js";
import { empty, setServerTime, tellTimes } from "./parts.js";
import { amend, go, link, read } from "./router.js";
import { frame, SECTIONS, signIn } from "./shell.js";
import { later } from "./timing.js";

const PAGES = {
  overview: () => import("./pages/overview.js"),
  queues: (one) => (one ? import("./pages/queue.js") : import("./pages/queues.js")),
  messages: (one) => (one ? import("./pages/message.js") : import("./pages/messages.js")),
  groups: (one) => (one ? import("./pages/group.js") : import("./pages/groups.js")),
  "dead-letters": () => import("./pages/dead_letters.js"),
  jobs: (one) => (one ? import("./pages/job.js") : import("./pages/jobs.js")),
  pipeline: () => import("./pages/pipeline.js"),
  system: () => import("./pages/system.js"),
};
const THEMES = ["auto", "light", "dark"];
const TELL_TIMES_MS = 2_000;
const PATIENCE_MS = 300;
const SUGGEST_MS = 200;

const root = document.getElementById("app");
const model = {
  section: "overview",
  overview: null,
  connection: "connecting",
  menuOpen: false,
  suggestions: [],
  session: { auth: false, signedIn: false, roles: [] },
  theme: document.documentElement.dataset.theme ?? "auto",
  signIn: { fault: null, busy: false },
};
let page = null;
let opened = 0;
let planned = false;
// Whose topics the stream has: a page is fed before it is shown.
let followed = null;

const live = new Live({
  probe: loadOverview,
  healed: () => load(page),
  changed: (state) => {
    model.connection = state;
    redraw();
  },
  event: (topic, data) => {
    if (topic === "hello") setServerTime(data.at);
    if (topic === "overview") mergeOverview(data);
    if (topic === "hello") followed?.content.streaming?.();
    followed?.content.topics?.[topic]?.(data);
    redraw();
  },
});

async function loadOverview() {
  mergeOverview(await get("dashboard/overview"));
  redraw();
}

function mergeOverview(data) {
  // An answer that was asked for may come after an event that is newer.
  if (data.at && model.overview?.at > data.at) return;
  model.overview = { ...model.overview, ...data };
  if (data.at) setServerTime(data.at);
}

function redraw() {
  if (planned) return;
  planned = true;
  queueMicrotask(() => {
    planned = false;
    draw();
  });
}

function draw() {
  root.classList.toggle("app-signed-out", !model.session.signedIn);
  if (!model.session.signedIn) {
    if (model.asked) fill(root, signIn(model.signIn, submitToken));
    return;
  }
  fill(root, frame(model, actions, main()));
  document.title = page?.content?.title ? `${page.content.title} · Monarq` : "Monarq";
}

function main() {
  const { content, fault, loaded } = page ?? {};
  let body = null;
  if (fault) body = failure(fault);
  else if (content && loaded) body = rendered(content);
  else body = h("p.loading", { role: "status" }, "Loading…");
  return h(
    "main.main",
    {
      key: `main-${page?.number}`,
      id: "main",
      tabindex: "-1",
      "aria-busy": String(!loaded && !fault),
    },
    outage(),
    content &&
      h(
        "div.page-head",
        null,
        h(
          "div.page-title",
          null,
          content.crumbs && crumbs(content.crumbs),
          h("h1.name", { dir: "auto" }, content.heading ?? content.title),
        ),
        !fault && loaded && content.actions && h("div.page-actions", null, content.actions()),
      ),
    body,
  );
}

// A page that fails to draw must not take the navigation with it.
function rendered(content) {
  try {
    return content.render();
  } catch (error) {
    console.error(error);
    return failure(
      new ApiError(500, "page", "The page itself failed; the browser's console says why."),
    );
  }
}

function crumbs(all) {
  return h(
    "nav.crumbs",
    { "aria-label": "Where this is" },
    all.map(([text, href]) => [
      h("a.name", { href, dir: "auto" }, text),
      h("span", { "aria-hidden": "true" }, " / "),
    ]),
  );
}

function outage() {
  const store = model.overview?.health.store;
  if (model.connection === "offline") {
    return h(
      "div.banner.banner-bad",
      { role: "alert", key: "outage" },
      h("b", null, "The broker does not answer."),
      " What you see is as it was; this page looks again by itself.",
    );
  }
  if (store && !store.ok) {
    return h(
      "div.banner.banner-bad",
      { role: "alert", key: "outage" },
      h("b", null, "The store is down."),
      " Pushes are kept in files; the rest waits. ",
      h("a", { href: link(["system"]) }, "Details"),
    );
  }
  return null;
}

function failure(fault) {
  if (fault.status === 404) return empty("There is no such thing here.", fault.message);
  if (fault.status === 403) return empty("Your role does not allow this.", fault.message);
  return h(
    "div.failure",
    { role: "alert" },
    h("p", null, h("b", null, "This could not be loaded. "), fault.message),
    h("button.button", { type: "button", onclick: () => load(page) }, "Try again"),
  );
}

async function openPage() {
  const { parts, query } = read();
  const section = PAGES[parts[0]] ? parts[0] : "overview";
  const place = JSON.stringify([section, parts.slice(1)]);
  if (page?.place === place && page.content?.moved?.(query)) return;
  const number = ++opened;
  Object.assign(model, { section, menuOpen: false });
  const next = { number, place, content: null, loaded: false, fault: null };
  // The old page stays in sight until the new one is there, or takes its time.
  const turn = () => {
    if (number !== opened || page === next) return;
    page?.content?.leave?.();
    page = next;
    window.scrollTo(0, 0);
    redraw();
  };
  const patience = setTimeout(turn, page ? PATIENCE_MS : 0);
  redraw();
  try {
    const module = await PAGES[section](parts.length > 1);
    if (number !== opened) return;
    next.content = module.open({
      parts: parts.slice(1),
      query,
      redraw: () => page === next && redraw(),
      reload: () => load(next),
      overview: () => model.overview,
      loadOverview,
      can: (role) => model.session.roles.includes(role),
      session: () => model.session,
      follow: () => page === next && followPage(next),
      amend,
    });
    followPage(next);
    await load(next);
  } catch (error) {
    next.fault = new ApiError(0, "unreachable", "The page could not be fetched from the broker.");
    console.error(error);
  }
  clearTimeout(patience);
  if (number !== opened) {
    next.content?.leave?.();
    return;
  }
  turn();
  redraw();
  queueMicrotask(() => {
    // Not on the first page: there the keyboard begins with the link that skips the navigation.
    if (number > 1 && document.activeElement === document.body)
      document.getElementById("main")?.focus({ preventScroll: true });
  });
}

function followPage(one) {
  followed = one;
  const { content } = one;
  const topics = new Set(["overview", ...Object.keys(content.topics ?? {})]);
  live.follow([...topics], content.follow?.() ?? {});
}

async function load(one) {
  if (!one?.content || !model.session.signedIn) return;
  try {
    await one.content.load?.();
    one.fault = null;
    one.loaded = true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // What was there stays while the broker is away.
    one.fault = one.loaded && (error.unreachable || error.status === 503) ? null : error;
  }
  if (one === page) redraw();
}

const actions = {
  menu: () => {
    model.menuOpen = !model.menuOpen;
    redraw();
  },
  theme: () => {
    model.theme = THEMES[(THEMES.indexOf(model.theme) + 1) % THEMES.length];
    if (model.theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = model.theme;
    try {
      localStorage.setItem("monarq-theme", model.theme);
    } catch {
      // Storage may be forbidden: the choice holds until the page is closed.
    }
    redraw();
  },
  signOut: async () => {
    await remove("session");
    location.reload();
  },
  suggest: later(SUGGEST_MS, async (event) => {
    const text = event.target.value.trim();
    if (!text) return;
    try {
      model.suggestions = await suggestions(text);
      redraw();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }),
  find: async (event) => {
    event.preventDefault();
    const box = event.target.elements.go;
    const text = box.value.trim();
    if (!text) return;
    try {
      await find(text);
      box.value = "";
    } catch (error) {
      notice(error.message, { bad: true });
    }
  },
};

async function submitToken(event) {
  event.preventDefault();
  const box = event.target.elements.token;
  model.signIn = { fault: null, busy: true };
  redraw();
  try {
    await begin(await post("session", { token: box.value.trim() }));
    box.value = "";
    model.signIn = { fault: null, busy: false };
  } catch (error) {
    model.signIn = { fault: error.message, busy: false };
  }
  redraw();
}

async function begin(session) {
  model.session = session;
  model.asked = true;
  setCsrf(session.csrfToken);
  if (session.signedIn) await openPage();
  else {
    live.stop();
    model.overview = null;
    page = null;
    followed = null;
  }
  redraw();
}

let asking = false;
async function askSession() {
  if (asking) return;
  asking = true;
  try {
    const session = (await enterByLink(model.section)) ?? (await get("session"));
    if (session.signedIn !== model.session.signedIn || !model.asked) await begin(session);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (!model.asked) {
      fill(
        root,
        h(
          "main.sign-in",
          { id: "main" },
          h("p.banner.banner-bad", { role: "alert" }, "The broker does not answer. Trying again…"),
        ),
      );
      setTimeout(askSession, 1000);
    }
  } finally {
    asking = false;
  }
}

watch({ unauthorised: () => askSession() });
window.addEventListener("hashchange", () => {
  if (location.hash === "#main") {
    history.replaceState(null, "", link([model.section]));
    return;
  }
  if (isEntering()) {
    location.reload();
    return;
  }
  if (model.session.signedIn) openPage();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && model.menuOpen) actions.menu();
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("go")?.focus();
  }
  const number = Number(event.key);
  if (number >= 1 && number <= SECTIONS.length) go([SECTIONS[number - 1][0]]);
});
setInterval(() => document.hidden || tellTimes(root), TELL_TIMES_MS);
askSession();
