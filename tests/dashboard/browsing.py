"""A real browser, and what a person does with the dashboard in it."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    expect,
    sync_playwright,
)

from tests.server.serving import ServerProcess

#: Names under which systems install it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "no Chromium: these tests open the dashboard in a real browser; "
    "`apt-get install chromium` installs one"
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
BOUND_MS = 45_000.0
"""After which something that should have shown never will."""

expect.set_options(timeout=BOUND_MS)


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser with a fresh profile; its processes end with the block."""
    path = find_chromium()
    assert path is not None, MISSING
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Board:
    """A page of the dashboard of one broker. Keeps what the browser complains about."""

    def __init__(self, context: BrowserContext, server: ServerProcess) -> None:
        self.server = server
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(BOUND_MS)
        self.complaints: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def open(self, place: str = "") -> None:
        """Go to a place such as `#/queues`, and wait until it is there."""
        self.page.goto(f"{self.server.url}/{place}")
        self.wait()

    def enter(self) -> None:
        """Come as the user who runs the broker, by a link as `monarq serve` prints it."""
        [token] = self.server.local_proof().values()
        self.page.goto(f"{self.server.url}/#local={token}")
        self.wait()

    def wait(self) -> None:
        expect(self.page.locator("main[aria-busy=false]")).to_be_visible()
        expect(self.main.get_by_role("heading", level=1)).to_be_visible()

    # --- finding ---------------------------------------------------------------------------------

    @property
    def main(self) -> Locator:
        return self.page.get_by_role("main")

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def button(self, name: str, *, within: Locator | None = None) -> Locator:
        return (within or self.main).get_by_role("button", name=name, exact=True)

    def link(self, name: str, *, within: Locator | None = None) -> Locator:
        return (within or self.main).get_by_role("link", name=name, exact=True)

    def row(self, text: str) -> Locator:
        return self.main.get_by_role("row").filter(has_text=text)

    # --- doing -----------------------------------------------------------------------------------

    def confirm(self, action: str, **fields: str) -> None:
        """Fill in the dialog that asks, and agree."""
        expect(self.dialog).to_be_visible()
        for name, value in fields.items():
            self.dialog.locator(f"[name={name}]").fill(value)
        self.dialog.get_by_role("button", name=action).click()
        expect(self.dialog).to_have_count(0)

    def expect_notice(self, text: str) -> None:
        expect(self.page.locator("#notices")).to_contain_text(text)

    def expect_live(self) -> None:
        expect(self.page.get_by_text("Live", exact=True)).to_be_visible()

    def check(self) -> None:
        assert not self.complaints, "\n".join(self.complaints)

    def close(self) -> None:
        self.page.close()


@contextlib.contextmanager
def boarding(browser: Browser, server: ServerProcess, **context: Any) -> Iterator[Board]:
    """A fresh profile, as of somebody who comes for the first time."""
    context.setdefault("viewport", {"width": 1360, "height": 900})
    made = browser.new_context(**context)
    try:
        board = Board(made, server)
        yield board
        board.close()
    finally:
        made.close()
