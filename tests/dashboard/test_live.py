"""A page that is open stays true: what changes arrives by itself, and a broker that goes away and
comes back is noticed both times."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.dashboard.browsing import Board, boarding
from tests.dashboard.seeding import Caller, calling
from tests.server.serving import ServerProcess

pytestmark = pytest.mark.slow


def test_what_changes_arrives_by_itself(board: Board, api: Caller) -> None:
    api.push("ticker", 1)
    board.open("#/queues/ticker")
    board.expect_live()
    now = board.main.get_by_role("region", name="Now")
    expect(now).to_contain_text("Pending1")
    api.push("ticker", 2, 3, 4)
    expect(now).to_contain_text("Pending4")
    api.consume("ticker", "readers")
    expect(board.main.get_by_role("row").filter(has_text="readers")).to_be_visible()
    expect(now).to_contain_text("Pending0")


def test_queues_that_come_and_go_are_seen_in_the_list(board: Board, api: Caller) -> None:
    board.open("#/queues")
    board.expect_live()
    api.push("visitor", 1)
    expect(board.row("visitor")).to_be_visible()
    api.call("DELETE", "/api/v1/resources/queues/visitor")
    expect(board.row("visitor")).to_have_count(0)


def test_queues_that_come_and_go_are_seen_in_a_list_with_a_filter(
    board: Board, api: Caller
) -> None:
    board.open("#/queues?search=guest")
    board.expect_live()
    expect(board.main).to_contain_text("No queue matches.")
    api.push("passer-by", 1)
    api.push("a guest", 1)
    expect(board.row("a guest")).to_be_visible()
    expect(board.row("passer-by")).to_have_count(0)
    api.call("DELETE", "/api/v1/resources/queues/a%20guest")
    expect(board.row("a guest")).to_have_count(0)


def test_what_needs_attention_appears_and_goes(board: Board, api: Caller) -> None:
    board.open()
    board.expect_live()
    api.configure("brimming", maxSize=2)
    api.push("brimming", 1, 2)
    item = board.main.get_by_role("listitem").filter(has_text="brimming is full")
    expect(item).to_be_visible()
    api.call("DELETE", "/api/v1/resources/queues/brimming")
    expect(item).to_have_count(0)


def test_a_broker_that_goes_away_and_comes_back_is_noticed(
    browser: Browser, fresh: Callable[..., ServerProcess]
) -> None:
    server = fresh()
    with calling(server) as api:
        api.push("before", 1)
    with boarding(browser, server) as board:
        board.open("#/queues")
        board.expect_live()
        expect(board.row("before")).to_be_visible()
        server.kill()
        expect(board.page.get_by_text("The broker does not answer.")).to_be_visible()
        # What was there stays in sight.
        expect(board.row("before")).to_be_visible()
        server.start()
        board.expect_live()
        expect(board.page.get_by_text("The broker does not answer.")).to_have_count(0)
        with calling(server) as api:
            api.push("after", 1)
        expect(board.row("after")).to_be_visible()
        # A browser notes each call that met nobody; a page that fails is another thing.
        failed = [one for one in board.complaints if "ERR_" not in one]
        assert not failed, failed


def test_a_stop_of_the_broker_is_not_held_up_by_pages(
    browser: Browser, fresh: Callable[..., ServerProcess]
) -> None:
    server = fresh()
    with boarding(browser, server) as board:
        board.open()
        board.expect_live()
        server.signal()
        assert server.wait(20) == 0
        expect(board.page.get_by_text("The broker does not answer.")).to_be_visible()


def test_without_a_stream_the_page_asks_again_and_again(board: Board, api: Caller) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=503, body='{"error": "too many", "code": "overloaded"}')

    board.page.route("**/api/v1/events*", refuse)
    board.open()
    expect(board.page.get_by_text("Polling", exact=True)).to_be_visible()
    api.configure("overflow", maxSize=1)
    api.push("overflow", 1)
    expect(board.main).to_contain_text("overflow is full")
    board.page.unroute("**/api/v1/events*")
    board.complaints = [one for one in board.complaints if "503" not in one]
