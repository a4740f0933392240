"""How soon the dashboard shows something: from the start of navigation to the overview with data.

A real Chromium with an empty cache opens the overview of a broker on this machine, several times:
with the few queues that the tests have, and with very many. No test asserts a speed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from bench.bars import Bars
from bench.harness import machine, progress, table, write_json
from tests.dashboard.browsing import MISSING, find_chromium, running_browser
from tests.dashboard.seeding import Caller, calling, seed
from tests.server.serving import ServerProcess

QUEUES = 10_000
BATCH = 500
MOST_SECONDS = 1.0
MOST_BYTES = 200_000

# The page's own clock starts with the navigation.
WATCH = """
    new MutationObserver((_, observer) => {
      if (document.querySelector("main[aria-busy=false] h1")) {
        observer.disconnect();
        const draw = () => { window.drawn = performance.now(); };
        requestAnimationFrame(() => requestAnimationFrame(draw));
      }
    }).observe(document, {subtree: true, childList: true, attributes: true});
"""
DRAWN = """() => new Promise((tell) => {
    const look = () => window.drawn ? tell(window.drawn) : requestAnimationFrame(look);
    look();
})"""


def first_view(browser: Browser, server: ServerProcess) -> tuple[float, float]:
    """Seconds until it is drawn, and bytes that came over the wire until then."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(WATCH)
    client = context.new_cdp_session(page)
    weights: list[float] = []
    client.on("Network.loadingFinished", lambda event: weights.append(event["encodedDataLength"]))
    client.send("Network.enable")
    page.goto(f"{server.url}/")
    seconds = page.evaluate(DRAWN) / 1_000
    context.close()
    return seconds, sum(weights)


def fill(caller: Caller) -> None:
    for start in range(0, QUEUES, BATCH):
        names = [f"queue-{number:05d}" for number in range(start, start + BATCH)]
        caller.post("/api/v1/push", {"items": [{"queue": name, "payload": 1} for name in names]})


def measure(rounds: int, *, is_full: bool) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running_browser() as browser,
        ServerProcess({"data_dir": directory}) as server,
        calling(server) as caller,
    ):
        seed(caller)
        if is_full:
            fill(caller)
        views = [first_view(browser, server) for _ in range(rounds)]
    return {
        "seconds": [round(seconds, 3) for seconds, _ in views],
        "bytes": round(max(size for _, size in views)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    if find_chromium() is None:
        sys.exit(MISSING)
    cases = {}
    for name, is_full in (("few queues", False), (f"{QUEUES:,} queues", True)):
        progress(f"the first view with {name}")
        cases[name] = measure(options.rounds, is_full=is_full)
    few = cases["few queues"]
    bars = Bars()
    bars.at_most("first view", statistics.median(few["seconds"]), MOST_SECONDS, "s")
    bars.at_most("first view over the wire", few["bytes"], MOST_BYTES, "bytes")
    content = {"machine": machine(["playwright"]), "store": "sqlite", "cases": cases}
    content["bars"] = bars.as_json()
    path = write_json("dashboard", content, options.json)
    rows = [
        (
            name,
            f"{min(case['seconds']):.2f}",
            f"{statistics.median(case['seconds']):.2f}",
            f"{max(case['seconds']):.2f}",
            f"{case['bytes']:,}",
        )
        for name, case in cases.items()
    ]
    print(table(["first view", "best s", "median s", "worst s", "bytes"], rows))
    print("\n" + bars.table())
    print(f"written to {path}")


if __name__ == "__main__":
    main()
