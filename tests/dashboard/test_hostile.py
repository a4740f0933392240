"""Names and payloads that try to be more than text stay text, wherever the dashboard shows them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.browsing import Board, boarding
from tests.dashboard.seeding import Caller, calling
from tests.server.serving import ServerProcess

# The page is the same on every store, and tests of the server send such names to both.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("seeded", ["sqlite"], indirect=True),
]

SCRIPT = "<script>window.owned=1</script>"
HANDLER = '"><img src=x onerror="window.owned=1">'
HOSTILE = (
    SCRIPT,
    HANDLER,
    "'; window.owned=1; '",
    "javascript:window.owned=1//",
    "{{constructor.constructor('window.owned=1')()}}",
    "‮gnirts tfel ot thgir",
    "مرحبا بالعالم",
    "🦋🇩🇪👩‍👩‍👧‍👦",
    "a/b?c#d%2F%00&e=f",
    ".." + "/.." * 10,
    "x" * 255,
)


def code(name: str) -> str:
    return quote(name, safe="")


@pytest.fixture(scope="module")
def hostile(seeded: ServerProcess) -> ServerProcess:
    """A broker on which everything has such names."""
    with calling(seeded) as api:
        for name in HOSTILE:
            api.configure(name, retryLimit=0)
            payload = {"number": 12345678901234567890, name: name, "list": [name]}
            api.push(name, payload, payload, partition=name, transactionId=name)
            api.push(name, *range(3), partition=name)
            api.fail(name, name, name, name)
        api.configure(f"work {SCRIPT}", "work")
        api.push(f"work {SCRIPT}", {"task": SCRIPT}, transactionId=SCRIPT)
        api.push("large", {"text": "<b>large</b>" * 90_000})
        now = datetime.now(UTC).isoformat()
        api.call(
            "PUT",
            f"/api/v1/records/worker/{code(SCRIPT)}",
            {
                "value": {
                    "id": SCRIPT, "host": HANDLER, "state": "running", "queues": [SCRIPT],
                    "running": [{"id": "1-1", "job": SCRIPT, "queue": SCRIPT, "attempt": 1,
                                 "startedAt": now, "what": HANDLER}],
                    "startedAt": now, "heartbeatAt": now,
                }
            },
        )  # fmt: skip
    return seeded


@pytest.fixture
def hostile_board(browser: Browser, hostile: ServerProcess) -> Iterator[Board]:
    with boarding(browser, hostile) as board:
        yield board
        assert board.page.evaluate("window.owned") is None
        assert board.page.locator("main script, main img[src=x]").count() == 0
        board.check()


def test_queues_and_groups_with_hostile_names_are_shown_as_text(hostile_board: Board) -> None:
    board = hostile_board
    for place in ("", "#/queues", "#/groups", "#/dead-letters"):
        board.open(place)
        expect(board.main).to_contain_text("window.owned")
    for name in HOSTILE:
        board.open(f"#/queues/{code(name)}")
        expect(board.main.get_by_role("heading", level=1)).to_have_text(name)
        board.open(f"#/queues/{code(name)}?tab=partitions")
        expect(board.main).to_contain_text(name)
        board.open(f"#/groups/{code(name)}/{code(name)}")
        expect(board.main).to_contain_text(name)


def test_messages_with_hostile_payloads_are_shown_as_text(
    hostile_board: Board, api: Caller
) -> None:
    board = hostile_board
    for name in HOSTILE:
        board.open(f"#/messages?queue={code(name)}")
        expect(board.main).to_contain_text("12345678901234567890")
        [row, *_] = api.get(f"/api/v1/messages?queue={code(name)}&limit=1")["messages"]
        board.open(f"#/messages/{row['partitionId']}/{row['id']}")
        expect(board.main).to_contain_text("12345678901234567890")
        board.open(f"#/dead-letters?queue={code(name)}")
        expect(board.main).to_contain_text("12345678901234567890")


def test_a_payload_of_a_megabyte_is_shown_without_harm(hostile_board: Board, api: Caller) -> None:
    board = hostile_board
    board.open("#/messages?queue=large")
    expect(board.main).to_contain_text("<b>large</b>")
    [row] = api.get("/api/v1/messages?queue=large")["messages"]
    board.open(f"#/messages/{row['partitionId']}/{row['id']}")
    expect(board.main).to_contain_text("<b>large</b>")
    assert board.page.locator("main b", has_text="large<b>").count() == 0


def test_jobs_and_workers_with_hostile_names_are_shown_as_text(
    hostile_board: Board, api: Caller
) -> None:
    board = hostile_board
    queue = f"work {SCRIPT}"
    board.open(f"#/jobs?queue={code(queue)}")
    expect(board.main).to_contain_text(SCRIPT)
    [item] = api.get(f"/api/v1/items?queue={code(queue)}")["items"]
    board.open(f"#/jobs/{item['id']}")
    expect(board.main).to_contain_text(SCRIPT)
    board.open("#/jobs?tab=workers")
    expect(board.main).to_contain_text(HANDLER)


def test_pages_with_the_longest_names_fit_a_phone(browser: Browser, hostile: ServerProcess) -> None:
    name = code(HOSTILE[-1])
    places = (
        *("", "#/queues", "#/groups", "#/dead-letters", "#/jobs"),
        *(f"#/queues/{name}", f"#/queues/{name}?tab=partitions", f"#/groups/{name}/{name}"),
        *(f"#/messages?queue={name}", f"#/dead-letters?queue={name}&group={name}"),
    )
    with boarding(browser, hostile, viewport={"width": 360, "height": 740}) as board:
        wider = {}
        for place in places:
            board.open(place)
            wider[place] = board.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        assert not any(wider.values()), wider
        board.check()


def test_dead_letters_of_work_queues_make_no_group_without_a_name(
    hostile_board: Board, api: Caller
) -> None:
    queue = f"dying {SCRIPT}"
    api.configure(queue, "work")
    api.push(queue, {"task": SCRIPT})
    api.answer(api.pop(queue), "dead", "gone")
    hostile_board.open("#/dead-letters")
    expect(hostile_board.main).to_contain_text("gone")
    groups = hostile_board.main.get_by_label("Group").locator("option").all_inner_texts()
    assert groups[0] == "all"
    assert "" not in groups


def test_an_action_on_a_hostile_name_reaches_that_name_and_no_other(
    hostile_board: Board, api: Caller
) -> None:
    board = hostile_board
    name = "a/b?c#d%2F%00&e=f"
    board.open(f"#/queues/{code(name)}")
    board.button("Pause").click()
    board.confirm("Pause")
    expect(board.button("Resume")).to_be_visible()
    paused = [
        row["name"]
        for row in api.get("/api/v1/resources/queues?limit=1000")["queues"]
        if row["paused"] and row["name"] in HOSTILE
    ]
    assert paused == [name]
