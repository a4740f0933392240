"""Every button does what it says: pressed in a real browser, and looked up without it."""

import base64
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.dashboard.browsing import Board
from tests.dashboard.places import TRANSACTION
from tests.dashboard.seeding import (
    ERROR,
    STUCK_GROUP,
    STUCK_PARTITION,
    STUCK_QUEUE,
    Caller,
    wait_until,
)

# The page is the same on every store, and tests of the server do on both what it does.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("seeded", ["sqlite"], indirect=True),
]


def queue_of(api: Caller, name: str) -> Any:
    return api.get(f"/api/v1/resources/queues/{quote(name, safe='')}")


def letters(api: Caller, queue: str, error: str = "") -> int:
    more = f"&error={quote(error)}" if error else ""
    return int(api.get(f"/api/v1/dlq?queue={queue}{more}")["total"])


def names(api: Caller) -> set[str]:
    return {row["name"] for row in api.get("/api/v1/resources/queues?limit=1000")["queues"]}


# --- the story that the dashboard is for ---------------------------------------------------------


def test_an_operator_goes_from_the_overview_to_the_button_that_frees_a_stuck_group(
    board: Board, api: Caller
) -> None:
    board.open()
    item = board.main.get_by_role("listitem").filter(has_text=f"{STUCK_GROUP} is stuck")
    expect(item).to_contain_text(STUCK_QUEUE)
    expect(item).to_contain_text(STUCK_PARTITION)
    expect(item).to_contain_text("ValueError")
    item.get_by_role("link").last.click()
    board.wait()
    expect(board.main.get_by_text("stuck", exact=True)).to_be_visible()
    poison = board.main.get_by_role("article").filter(has_text=STUCK_PARTITION)
    expect(poison).to_contain_text(ERROR)
    expect(poison).to_contain_text("no number")
    expect(poison).to_contain_text("40 waiting behind it")
    board.button("Skip to the dead letters", within=poison).click()
    board.confirm("Skip to the dead letters")
    board.expect_notice("Skipped.")
    expect(poison).to_have_count(0)
    [letter] = api.get(f"/api/v1/dlq?queue={STUCK_QUEUE}")["messages"]
    assert (letter["transactionId"], letter["consumerGroup"]) == (TRANSACTION, STUCK_GROUP)
    assert api.consume(STUCK_QUEUE, STUCK_GROUP) == 40
    board.open()
    expect(item).to_have_count(0)


# --- queues --------------------------------------------------------------------------------------


def test_only_scheduled_items_or_all_but_leased_ones_are_cleared(board: Board, api: Caller) -> None:
    api.post("/api/v1/configure", {"queue": "sorted out", "kind": "work"})
    api.push("sorted out", 1, 2)
    later = {"queue": "sorted out", "payload": 3, "delaySeconds": 600}
    api.post("/api/v1/push", {"items": [later]})
    api.get("/api/v1/pop/queue/sorted%20out")
    board.open("#/queues/sorted%20out")
    for choice, losses, left in (
        ("clearScheduled", "1 scheduled item will be removed", 2),
        ("clearUnleased", "1 item will be removed", 1),
        ("clear", "1 item being worked on will be lost too", 0),
    ):
        board.button("Clear").click()
        board.dialog.locator("[name=which]").select_option(choice)
        expect(board.dialog).to_contain_text(losses)
        board.confirm("Clear the queue", typed="sorted out")
        wait_until(
            lambda left=left: queue_of(api, "sorted out")["messages"]["total"] == left,
            f"not {left} are left",
        )


def test_a_queue_is_made_changed_paused_cleared_and_deleted(board: Board, api: Caller) -> None:
    board.open("#/queues")
    board.button("New queue").click()
    board.confirm("Create queue", queue="made by hand", namespace="desk")
    # The page goes there by itself, and must not do so after the next step.
    expect(board.main.get_by_role("heading", level=1)).to_contain_text("made by hand")
    assert "made by hand" in names(api)
    board.open("#/queues/made%20by%20hand?tab=options")
    lease = board.main.get_by_role("spinbutton", name="Lease time")
    lease.fill("-5")
    board.main.get_by_role("button", name="Save").click()
    expect(board.main.get_by_text("This must be between 0.001 and")).to_be_visible()
    assert queue_of(api, "made by hand")["options"]["leaseTime"] == 300
    lease.fill("45")
    board.main.get_by_role("button", name="Save").click()
    wait_until(
        lambda: queue_of(api, "made by hand")["options"]["leaseTime"] == 45, "it was not saved"
    )
    assert queue_of(api, "made by hand")["namespace"] == "desk"

    board.button("Pause").click()
    board.confirm("Pause")
    expect(board.button("Resume")).to_be_visible()
    assert queue_of(api, "made by hand")["paused"] is True
    board.button("Resume").click()
    expect(board.button("Pause")).to_be_visible()
    assert queue_of(api, "made by hand")["paused"] is False

    api.push("made by hand", 1, 2, 3)
    board.button("Clear").click()
    expect(board.dialog).to_contain_text("3 messages will be removed")
    board.dialog.get_by_role("button", name="Cancel").click()
    assert queue_of(api, "made by hand")["messages"]["total"] == 3
    board.button("Clear").click()
    board.dialog.get_by_role("button", name="Clear the queue").click()
    expect(board.dialog).to_contain_text("That is not the name.")
    board.confirm("Clear the queue", typed="made by hand")
    board.expect_notice("3 removed")
    assert queue_of(api, "made by hand")["messages"]["total"] == 0

    board.button("Delete").click()
    board.confirm("Delete the queue", typed="made by hand")
    expect(board.main.get_by_role("heading", level=1)).to_have_text("Queues")
    assert "made by hand" not in names(api)


def test_a_dead_queue_is_not_deleted_and_the_page_says_why(board: Board, api: Caller) -> None:
    api.configure("morgue")
    api.configure("ward", deadQueue="morgue")
    board.open("#/queues/morgue")
    board.button("Delete").click()
    board.expect_notice("dead queue of ward")
    assert "morgue" in names(api)


# --- messages ------------------------------------------------------------------------------------


def test_a_message_is_pushed_by_hand_found_and_deleted(board: Board, api: Caller) -> None:
    board.open("#/messages")
    board.button("Push a message").click()
    board.dialog.locator("[name=queue]").fill("notes")
    board.dialog.locator("[name=payload]").fill("{no json")
    board.dialog.get_by_role("button", name="Push").click()
    expect(board.dialog).to_contain_text("Not JSON")
    board.confirm(
        "Push",
        payload='{"big": 12345678901234567890, "text": "hello"}',
        partition="desk",
        transactionId="note-1",
    )
    board.expect_notice("Pushed")
    [found] = api.get("/api/v1/dashboard/find?queue=notes&transactionId=note-1")["found"]
    assert found["partition"] == "desk"
    stored = api.get(f"/api/v1/messages/{found['partitionId']}/note-1")
    assert stored["data"] == {"big": 12345678901234567890, "text": "hello"}

    board.open("#/messages?queue=notes")
    board.main.get_by_role("searchbox", name="Look up").fill("note-1")
    board.button("Look up").click()
    expect(board.main).to_contain_text("12345678901234567890")
    board.open(f"#/messages/{found['partitionId']}/note-1")
    board.button("Delete").click()
    board.confirm("Delete the message")
    board.expect_notice("The message is deleted.")
    assert api.get("/api/v1/messages?queue=notes")["messages"] == []


def test_a_message_shows_its_groups_deliveries_and_trace(board: Board, api: Caller) -> None:
    [found] = api.get(f"/api/v1/dashboard/find?transactionId={TRANSACTION}")["found"]
    board.open(f"#/messages/{found['partitionId']}/{found['id']}")
    for words in (STUCK_GROUP, "shipping", "received", "consumer-3", ERROR, "12,50"):
        expect(board.main).to_contain_text(words)


# --- groups --------------------------------------------------------------------------------------


def test_a_group_is_moved_after_a_look_at_what_that_means(board: Board, api: Caller) -> None:
    api.push("news", *range(10))
    api.consume("news", "readers")
    board.open("#/groups/readers/news")
    board.button("Seek").click()
    board.dialog.locator("[name=to]").select_option("start")
    expect(board.dialog).to_contain_text("10 messages will be delivered again")
    assert api.get("/api/v1/consumer-groups/readers?queue=news")["queues"][0]["lag"] == 0
    board.confirm("Move the group")
    board.expect_notice("10 messages before it now")
    assert api.get("/api/v1/consumer-groups/readers?queue=news")["queues"][0]["lag"] == 10
    board.button("Seek").click()
    board.dialog.locator("[name=to]").select_option("end")
    expect(board.dialog).to_contain_text("10 messages will never be delivered")
    board.confirm("Move the group")
    assert api.consume("news", "readers") == 0
    board.button("Delete").click()
    board.confirm("Delete the group", typed="readers")
    board.expect_notice("is deleted")
    assert api.get("/api/v1/consumer-groups?queue=news")["consumerGroups"] == []


# --- dead letters --------------------------------------------------------------------------------


def bury(api: Caller, queue: str, *errors: str) -> None:
    api.configure(queue, retryLimit=0)
    for number, error in enumerate(errors):
        api.push(queue, {"n": number}, transactionId=f"{queue}-{number}")
        api.fail(queue, "g", "Default", error)


def test_dead_letters_are_redriven_one_some_and_all(board: Board, api: Caller) -> None:
    bury(api, "wares", "Broken: glass", "Broken: glass", "Broken: glass", "Lost: ship", "Late")
    board.open("#/dead-letters?queue=wares")
    board.link("wares-4").click()
    expect(board.main).to_contain_text("Inside")
    board.button("Redrive this one").click()
    board.confirm("Redrive")
    board.expect_notice("1 message redriven")
    assert letters(api, "wares") == 4

    board.open("#/dead-letters?queue=wares")
    some = board.main.get_by_role("article").filter(has_text="Broken: glass")
    board.button("Redrive", within=some).click()
    board.confirm("Redrive")
    board.expect_notice("3 messages redriven")
    assert (letters(api, "wares", "Broken: glass"), letters(api, "wares")) == (0, 1)
    assert api.consume("wares", "g") == 4

    board.open("#/dead-letters?queue=wares")
    board.main.get_by_role("checkbox", name="Choose wares-3").check()
    board.main.get_by_role("button", name="Redrive 1").click()
    board.confirm("Redrive")
    wait_until(lambda: letters(api, "wares") == 0, "it was not redriven")
    assert api.consume("wares", "g") == 1


def test_dead_letters_are_purged_after_it_is_said_what_is_lost(board: Board, api: Caller) -> None:
    bury(api, "junk", "Rotten", "Rotten", "Stale")
    board.open("#/dead-letters?queue=junk")
    some = board.main.get_by_role("article").filter(has_text="Rotten")
    board.button("Purge", within=some).click()
    expect(board.dialog).to_contain_text("2 dead letters")
    board.confirm("Purge")
    board.expect_notice("2 dead letters purged")
    assert letters(api, "junk") == 1
    assert api.consume("junk", "g") == 0


# --- jobs ----------------------------------------------------------------------------------------


def test_a_job_is_enqueued_cancelled_and_retried(board: Board, api: Caller) -> None:
    api.configure("chores", "work")
    board.open("#/jobs?queue=chores")
    board.button("Enqueue a job").click()
    board.confirm("Enqueue", queue="chores", payload='{"sweep": "floor"}', id="chore-1")
    board.expect_notice("Enqueued")
    [item] = api.get("/api/v1/items?queue=chores")["items"]
    assert (item["transactionId"], item["data"]) == ("chore-1", {"sweep": "floor"})
    board.open(f"#/jobs/{item['id']}")
    board.button("Cancel").click()
    board.confirm("Cancel the job")
    wait_until(
        lambda: api.get(f"/api/v1/items/{item['id']}")["state"] == "cancelled", "not cancelled"
    )
    board.button("Retry").click()
    board.confirm("Retry")
    wait_until(lambda: api.get(f"/api/v1/items/{item['id']}")["state"] == "ready", "not retried")


def test_a_command_is_enqueued_and_its_output_is_seen_as_it_runs(board: Board, api: Caller) -> None:
    api.configure("commands", "work", runsCommands=True)
    board.enter()
    assert board.page.url == f"{board.server.url}/#/overview"
    board.open("#/jobs?queue=commands")
    board.button("Enqueue a job").click()
    board.confirm("Enqueue", command="echo 'first line'; sleep 5")
    board.expect_notice("Enqueued")
    board.wait()
    popped = api.pop("commands", consumer="worker-9")
    [message] = popped["messages"]
    assert message["data"]["command"] == "echo 'first line'; sleep 5"
    expect(board.main).to_contain_text("worker-9")
    for text in ("first line", "second <b>line</b>"):
        data = f"{text}\n".encode()
        api.post(
            f"/api/v1/items/{message['id']}/output",
            {"attempt": 1, "data": base64.b64encode(data).decode()},
        )
        expect(board.main).to_contain_text(text)
    api.answer(popped)
    expect(board.main).to_contain_text("done")


def test_without_the_link_a_command_is_not_enqueued(board: Board, api: Caller) -> None:
    api.configure("refused", "work", runsCommands=True)
    board.open("#/jobs?queue=refused")
    board.button("Enqueue a job").click()
    expect(board.dialog).to_be_visible()
    board.dialog.locator("[name=command]").fill("true")
    board.dialog.get_by_role("button", name="Enqueue").click()
    expect(board.dialog).to_contain_text("open the link that `monarq serve` printed")
    assert api.get("/api/v1/items?queue=refused")["items"] == []


def test_the_link_of_an_earlier_start_is_said_to_be_over(board: Board) -> None:
    board.page.goto(f"{board.server.url}/#local={'x' * 32}")
    board.expect_notice("open the link that `monarq serve` printed last")
    assert board.page.url == f"{board.server.url}/#/overview"
    board.complaints.clear()  # the browser logs the 401


# --- the system ----------------------------------------------------------------------------------


def test_maintenance_is_switched_on_and_off(board: Board, api: Caller) -> None:
    board.open("#/system?tab=switches")
    board.main.get_by_role("button", name="Switch on").first.click()
    expect(board.dialog).to_be_visible()
    board.dialog.get_by_role("button").last.click()
    wait_until(
        lambda: (
            api.get("/api/v1/status")["maintenancePush"]
            or api.get("/api/v1/status")["maintenancePop"]
        ),
        "nothing was switched on",
    )
    expect(board.button("Switch off")).to_be_visible()
    board.button("Switch off").click()
    if board.dialog.count():
        board.dialog.get_by_role("button").last.click()
    wait_until(
        lambda: (
            not api.get("/api/v1/status")["maintenancePush"]
            and not api.get("/api/v1/status")["maintenancePop"]
        ),
        "it was not switched off",
    )
