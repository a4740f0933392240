"""Every page, in a real browser, with data and without: it renders, breaks no rule that it set
itself, and can be used without eyes."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Request, expect

from tests.dashboard.browsing import Board, boarding
from tests.dashboard.places import EVERYWHERE, places
from tests.dashboard.seeding import STUCK_PARTITION, STUCK_QUEUE, Caller
from tests.server.serving import ServerProcess

pytestmark = pytest.mark.slow

FIRST_VIEW_BYTES = 200_000
#: What the store has no part in.
ON_SQLITE = pytest.mark.parametrize("seeded", ["sqlite"], indirect=True)
SERIOUS = ("serious", "critical")


def faults(board: Board) -> list[str]:
    """What axe finds that would keep somebody from using the page."""
    found = Axe().run(board.page).response["violations"]
    return [
        f"{fault['id']}: {fault['help']}: {node['html'][:200]}"
        for fault in found
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
    ]


#: Headings of columns that are too narrow to show anything.
SQUEEZED = """() => [...document.querySelectorAll(".table th")]
    .filter((th) => th.offsetParent && th.textContent.trim() && th.clientWidth < 48)
    .map((th) => th.textContent)"""


def test_every_page_renders_with_data_and_without_a_complaint(board: Board, api: Caller) -> None:
    for name, (place, words) in places(api).items():
        board.open(place)
        expect(board.main, name).to_contain_text(words)
        board.check()


@ON_SQLITE
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_used_by_everybody(
    browser: Browser, seeded: ServerProcess, api: Caller, scheme: str
) -> None:
    with boarding(browser, seeded, color_scheme=scheme, reduced_motion="reduce") as board:
        for name, (place, words) in places(api).items():
            board.open(place)
            expect(board.main, name).to_contain_text(words)
            assert not faults(board), name
        board.check()


def test_every_page_says_what_to_do_while_there_is_nothing(
    browser: Browser, fresh: Callable[..., ServerProcess]
) -> None:
    with boarding(browser, fresh()) as board:
        for name, (place, _) in EVERYWHERE.items():
            if name not in ("queue", "partitions", "options", "work-queue", "group", "messages"):
                board.open(place)
                assert not faults(board), name
        board.open("#/queues")
        # Without its address the command would go to the store of whoever pastes it.
        expect(board.main).to_contain_text(f"--url {board.server.url}")
        board.check()


def test_what_does_not_exist_is_told_plainly(board: Board) -> None:
    for place in ("#/queues/nowhere", "#/messages/999/none", "#/jobs/999-1"):
        board.page.goto(f"{board.server.url}/{place}")
        expect(board.main).to_contain_text("There is no such thing here.")
    # The browser itself notes each 404 of the API.
    assert all("404" in complaint for complaint in board.complaints), board.complaints
    board.complaints.clear()


@ON_SQLITE
def test_pages_work_on_a_phone(browser: Browser, seeded: ServerProcess, api: Caller) -> None:
    with boarding(browser, seeded, viewport={"width": 390, "height": 844}, has_touch=True) as board:
        for name, (place, words) in places(api).items():
            board.open(place)
            expect(board.main, name).to_contain_text(words)
            wider = board.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wider <= 0, f"{name} is {wider} px wider than the phone"
            assert not board.page.evaluate(SQUEEZED), name
        board.page.get_by_role("button", name="Menu").click()
        board.page.get_by_role("navigation").get_by_role("link", name="Groups").click()
        expect(board.main.get_by_role("heading", level=1)).to_have_text("Groups")
        board.check()


@ON_SQLITE
def test_the_first_view_is_small_and_comes_from_the_broker_alone(
    browser: Browser, seeded: ServerProcess
) -> None:
    with boarding(browser, seeded) as board:
        asked: list[Request] = []
        board.page.on("request", lambda request: asked.append(request))
        client = board.context.new_cdp_session(board.page)
        weights: list[float] = []
        client.on(
            "Network.loadingFinished", lambda event: weights.append(event["encodedDataLength"])
        )
        client.send("Network.enable")
        board.open()
        expect(board.main).to_contain_text("Throughput")
        assert sum(weights) < FIRST_VIEW_BYTES
        assert len(weights) > 5
        assert {request.url.split("/")[2] for request in asked} == {f"{seeded.host}:{seeded.port}"}
        board.check()


@ON_SQLITE
def test_everything_can_be_reached_with_the_keyboard(board: Board) -> None:
    board.open()
    board.page.get_by_text("Skip to the content").focus()
    board.page.keyboard.press("Enter")
    expect(board.page.locator("#main")).to_be_focused()
    board.page.keyboard.press("2")
    expect(board.main.get_by_role("heading", level=1)).to_have_text("Queues")
    board.page.keyboard.press("/")
    box = board.page.get_by_role("combobox", name="Go to a queue, group or message")
    expect(box).to_be_focused()
    box.fill(STUCK_QUEUE)
    box.press("Enter")
    expect(board.main.get_by_role("heading", level=1)).to_have_text(STUCK_QUEUE)
    button = board.button("Pause")
    button.focus()
    board.page.keyboard.press("Enter")
    expect(board.dialog).to_be_visible()
    board.page.keyboard.press("Escape")
    expect(board.dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_queues_and_partitions_are_searched_and_sorted(board: Board, api: Caller) -> None:
    board.open("#/queues")
    board.main.get_by_role("searchbox", name="Search queues").fill("PAY")
    expect(board.row("payments")).to_be_visible()
    expect(board.row(STUCK_QUEUE)).to_have_count(0)
    board.main.get_by_role("searchbox", name="Search queues").fill("")
    expect(board.row(STUCK_QUEUE)).to_be_visible()
    board.button("Dead letters").click()
    first = board.main.get_by_role("row").nth(1)
    expect(first).to_contain_text("payments")
    board.open(f"#/queues/{STUCK_QUEUE}?tab=partitions")
    board.main.get_by_role("searchbox", name="Search partitions").fill("customer-17")
    expect(board.row(STUCK_PARTITION)).to_be_visible()
    expect(board.row("customer-2")).to_have_count(0)


@ON_SQLITE
def test_the_theme_is_chosen_and_remembered(board: Board) -> None:
    board.open()
    button = board.page.get_by_role("button", name="Theme")
    for theme in ("light", "dark"):
        button.click()
        expect(button).to_have_accessible_name(f"Theme: {theme}. Change it.")
    board.page.reload()
    board.wait()
    assert board.page.evaluate("document.documentElement.dataset.theme") == "dark"
