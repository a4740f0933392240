"""Pictures of every page of the dashboard: light and dark, wide and as on a phone, with data and
without.

    python -m tests.dashboard.screenshots [folder]

`./dev screenshots` runs it. Without a folder they go to `docs/images`, only those that the
documentation shows.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from tests.dashboard.browsing import Board, boarding, running_browser
from tests.dashboard.places import EVERYWHERE, places
from tests.dashboard.seeding import calling, seed
from tests.server.serving import ServerProcess, sqlite_settings

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
#: What the documentation shows.
BEST = {"overview-light", "overview-dark", "group-light", "partitions-light", "dead-letters-light"}
WIDE = {"width": 1360, "height": 900}
PHONE = {"width": 390, "height": 844}
SETTLE_MS = 1_500.0
"""For live figures to arrive; a picture has no other way to know that it is whole."""


@contextmanager
def _broker(parent: Path, *, with_data: bool) -> Iterator[ServerProcess]:
    directory = Path(tempfile.mkdtemp(dir=parent))
    with ServerProcess(sqlite_settings(directory)) as server:
        if with_data:
            with calling(server) as caller:
                seed(caller)
        yield server


def _take(board: Board, place: str, path: Path) -> None:
    board.open(place)
    board.page.wait_for_timeout(SETTLE_MS)
    board.page.screenshot(path=path, type="png")


def take_all(browser: Browser, folder: Path, wanted: set[str] | None = None) -> list[Path]:
    """All of them, or those that are wanted, by name."""
    taken: list[Path] = []
    with tempfile.TemporaryDirectory() as scratch:
        for state in ("", "empty-"):
            if wanted is not None and not any(name.startswith(state) for name in wanted):
                continue
            with _broker(Path(scratch), with_data=not state) as server:
                pages = EVERYWHERE
                if not state:
                    with calling(server) as caller:
                        pages = places(caller)
                for look, options in _looks().items():
                    with boarding(browser, server, **options) as board:
                        for name, (place, _) in pages.items():
                            path = folder / f"{state}{name}-{look}.png"
                            if wanted is None or path.stem in wanted:
                                _take(board, place, path)
                                taken.append(path)
    return taken


def _looks() -> dict[str, dict[str, object]]:
    return {
        "light": {"color_scheme": "light", "viewport": WIDE},
        "dark": {"color_scheme": "dark", "viewport": WIDE},
        "phone": {"color_scheme": "light", "viewport": PHONE, "device_scale_factor": 2},
    }


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with running_browser() as browser:
        taken = take_all(browser, folder, BEST if folder == IMAGES else None)
    sys.stdout.write("".join(f"{path}\n" for path in taken))
    return 0


if __name__ == "__main__":
    sys.exit(main())
