/* System: the process, the store and its growth, settings in force, switches, peers. */

import { get, post } from "../api.js";
import { timeChart } from "../chart.js";
import { confirm, notice } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, count, duration, percent, plural } from "../format.js";
import {
  button,
  facts,
  moment,
  name,
  panel,
  plainTable,
  size,
  stat,
  state,
  tabs,
  when,
} from "../parts.js";
import { link } from "../router.js";
import { settingsView } from "../settings_view.js";
import { byteTicks, storePanel, words } from "../store_figures.js";

const RELOAD_MS = 10_000;

const CALL_FIGURES = ["Calls", "Messages", "Errors", "Under way", "Mean", "p50", "p95", "p99"];

export function open(ctx) {
  const tab = ctx.query.tab ?? "health";
  let system = null;
  let settings = null;
  const inForce = settingsView(ctx);

  async function load() {
    [system, settings] = await Promise.all([
      get("dashboard/system"),
      tab === "settings" && ctx.can("admin")
        ? get("dashboard/settings").then((answer) => answer.settings)
        : settings,
    ]);
  }

  const timer = setInterval(() => document.hidden || tab === "settings" || ctx.reload(), RELOAD_MS);

  return {
    title: "System",
    load,
    leave: () => clearInterval(timer),
    render: () => [
      tabs(
        "Views",
        [
          ["health", "Process and store"],
          ["switches", "Switches and buffer"],
          ["settings", "Settings"],
        ],
        tab,
        (key) => link(["system"], { tab: key }),
      ),
      tab === "health" && health(),
      tab === "switches" && switches(),
      tab === "settings" && inForce(settings),
    ],
  };

  function health() {
    const { process, connections, store, growth } = system;
    const points = growth ?? [];
    return [
      h(
        "section.stats",
        { "aria-label": "Process" },
        stat("Up for", duration(process.uptimeSeconds), {
          note: ["since ", when(process.startedAt)],
        }),
        stat("Memory", size(process.memoryBytes)),
        stat("Processor time", duration(process.cpuUserSeconds + process.cpuSystemSeconds), {
          note: `${percent((process.cpuUserSeconds + process.cpuSystemSeconds) / Math.max(1, process.uptimeSeconds))} of one core`,
        }),
        stat("Connections", count(connections.open), {
          note: plural(connections.streams, "event stream"),
        }),
        stat("Requests", count(connections.requests)),
        stat("Store", size(ctx.overview()?.health.store.bytes), {
          note: { sqlite: "SQLite", postgresql: "PostgreSQL" }[store.kind] ?? store.kind,
        }),
      ),
      h(
        "div.columns",
        null,
        panel(
          "Growth of the store",
          {},
          points.length > 1
            ? timeChart("growth", {
                times: points.map((one) => Date.parse(one.at)),
                series: [{ name: "size", tone: "in", values: points.map((one) => one.bytes) }],
                kind: "area",
                format: bytes,
                axis: bytes,
                label: "Size of the store over time",
                ticks: byteTicks,
              })
            : h(
                "p.soft",
                null,
                "The size is noted once an hour; the picture begins with the second note.",
              ),
        ),
        panel(
          "This process",
          {},
          facts([
            ["Host", name(process.hostname)],
            ["Process", process.pid],
            ["Version", process.version],
            ["Python", process.python],
            ["Started", moment(process.startedAt)],
            ["Processors", process.processors],
            ["Threads", process.threads],
            ["Open files", process.openFiles],
          ]),
        ),
      ),
      storePanel(store),
      calls(),
      slow(),
      peers(),
    ];
  }

  function calls() {
    return panel(
      "Calls to the store",
      { note: "of this process, since it was started" },
      plainTable(
        "Calls to the store",
        [["Call"], ...CALL_FIGURES.map((one) => [one, "num"])],
        system.calls.map((one) =>
          h(
            "tr",
            { key: one.call },
            h("td", null, one.call),
            h("td.num", null, count(one.calls)),
            h("td.num", null, count(one.messages)),
            h("td.num", null, one.errors ? h("span.bad", null, count(one.errors)) : "0"),
            h("td.num", null, count(one.inFlight)),
            [one.meanSeconds, one.p50, one.p95, one.p99].map((value) =>
              h("td.num", null, duration(value)),
            ),
          ),
        ),
      ),
    );
  }

  function slow() {
    return panel(
      "Slow calls",
      { note: "the slowest requests of this process lately" },
      system.slow.length
        ? plainTable(
            "Slow calls",
            [["Request"], ["Took", "num"], ["When"]],
            system.slow.map((one, index) =>
              h(
                "tr",
                { key: index },
                h("td.mono.small", { dir: "auto" }, one.what),
                h("td.num", null, duration(one.seconds)),
                h("td", null, when(one.at)),
              ),
            ),
          )
        : h("p.soft", null, "None."),
    );
  }

  function peers() {
    const { peers: figures, peerAddresses } = system;
    return panel(
      "Peers",
      { note: figures === null ? "none set" : null },
      figures === null
        ? h(
            "p.soft",
            null,
            "Brokers on the same PostgreSQL tell each other what became available. Name them with ",
            h("code", null, "--peers"),
            ".",
          )
        : [
            h(
              "ul",
              null,
              (peerAddresses ?? []).map((one) => h("li.mono", null, one)),
            ),
            facts(Object.entries(figures).map(([key, value]) => [words(key), count(value)])),
          ],
    );
  }

  function switches() {
    const { buffer } = system;
    return [
      panel(
        "Maintenance",
        { note: ctx.can("admin") ? null : "Your role may look, not switch." },
        row(
          "Keep pushes in files",
          "Pushes are answered `buffered` and reach the store, in order, when this is switched off. For work on the database.",
          system.maintenancePush,
          "system/maintenance",
        ),
        row(
          "Hold back pops",
          "Consumers find nothing until this is switched off. Pushes go on.",
          system.maintenancePop,
          "system/maintenance/pop",
        ),
      ),
      panel(
        "Buffer",
        { note: "where pushes wait while the store is down" },
        buffer.enabled
          ? facts([
              ["State", state(buffer.healthy ? "healthy" : "unhealthy")],
              [
                "Pushes go",
                { direct: "to the store", buffer: "to files", hold: "on hold" }[buffer.route] ??
                  buffer.route,
              ],
              ["Waiting", plural(buffer.records, "record")],
              ["Size", size(buffer.bytes)],
              ["Files", count(buffer.files)],
              ["Oldest", buffer.oldest ? when(buffer.oldest) : "–"],
              ["Fault", buffer.failing && h("span.bad", null, buffer.failing)],
            ])
          : h(
              "p.soft",
              null,
              "The buffer is switched off: while the store is down, pushes are refused.",
            ),
        buffer.setAside.length > 0 &&
          h(
            "div.stack",
            null,
            h("h3.bad", null, "Set aside: these could not be replayed"),
            h(
              "ul",
              null,
              buffer.setAside.map((one) => h("li.mono.small", null, one)),
            ),
            h("p.soft", null, "Look at them with ", h("code", null, "monarq buffer"), "."),
          ),
        buffer.others.length > 0 &&
          h("p.soft", null, "Pushes for other stores wait in: ", buffer.others.join(", ")),
      ),
    ];
  }

  function row(title, text, on, where) {
    return h(
      "div.switch-row",
      { key: title },
      h(
        "div",
        null,
        h("h3", null, title, " ", on ? state("paused", "on") : state("idle", "off")),
        h("p.soft.small", null, text.replaceAll("`", "")),
      ),
      ctx.can("admin") &&
        button(on ? "Switch off" : "Switch on", () => flip(title, text, on, where), {
          danger: !on,
          main: on,
        }),
    );
  }

  async function flip(title, text, on, where) {
    const done = await confirm({
      title: `${title}: switch ${on ? "off" : "on"}?`,
      text: on ? "Things go on as usual." : text.replaceAll("`", ""),
      action: `Switch ${on ? "off" : "on"}`,
      danger: !on,
      act: async () => {
        await post(where, { enabled: !on });
        notice(`${title} is ${on ? "off" : "on"}.`);
      },
    });
    if (done) ctx.reload();
  }
}
