"""`monarq queue`, on each store and over HTTP."""

import pytest

from monarq.model import QueueOptions
from tests.cli.invoking import Invoke


def test_a_queue_is_made_changed_shown_and_deleted(anywhere: Invoke) -> None:
    made = anywhere.json(
        "queue", "create", "orders", "--lease-time", "1m", "-o", "retryLimit=7", "--max-size", "9"
    )
    assert made["kind"] == "ordered"
    options = made["options"]
    assert (options["leaseTime"], options["retryLimit"], options["maxSize"]) == (60.0, 7, 9)

    # What is not named keeps its value.
    changed = anywhere.json("queue", "set", "orders", "--retry-delay", "5")
    assert changed["options"]["retryDelay"] == 5
    assert changed["options"]["leaseTime"] == 60.0

    anywhere.ok("push", "orders", "1")
    shown = anywhere.json("queue", "show", "orders")
    assert (shown["pending"], shown["stored"], shown["options"]["retryLimit"]) == (1, 1, 7)
    assert "retryLimit=7" in anywhere.ok("queue", "show", "orders").out

    [row] = anywhere.json("queue", "list")
    assert (row["queue"], row["pending"], row["state"]) == ("orders", 1, "open")
    assert anywhere.json("queue", "list", "--kind", "work") == []

    assert anywhere.json("queue", "pause", "orders")["state"] == "paused"
    assert anywhere.json("pop", "orders")["messages"] == []
    assert anywhere.json("queue", "resume", "orders")["state"] == "open"
    assert anywhere.json("queue", "delete", "orders", "--yes")["deleted"] is True
    assert anywhere.json("queue", "list") == []


def test_what_would_be_lost_is_said_and_nothing_is_lost_without_yes(cli: Invoke) -> None:
    cli.ok("push", "orders", stdin="1\n2\n3\n")
    cli.ok("pop", "orders", "--group", "billing")
    said = cli.refused("queue", "delete", "orders")
    assert "3 messages (3 of them pending), 1 group " in said
    assert "--yes" in said
    assert "3 messages" in cli.refused("queue", "clear", "orders")
    assert cli.json("queue", "show", "orders")["stored"] == 3
    assert cli.json("queue", "clear", "orders", "--yes")["removed"] == 3
    assert cli.json("queue", "show", "orders")["stored"] == 0


def test_clear_takes_only_scheduled_items_or_leaves_leased_ones(cli: Invoke) -> None:
    cli.ok("queue", "create", "work", "--kind", "work")
    cli.ok("push", "work", stdin="1\n2\n3\n")
    cli.ok("push", "work", "--run-at", "+1h", stdin="4\n")
    cli.ok("pop", "work")
    said = cli.refused("queue", "clear", "work", "--scheduled-only")
    assert "the scheduled items among 4 items" in said
    assert cli.json("queue", "clear", "work", "--scheduled-only", "--yes")["removed"] == 1
    assert "but the leased items" in cli.refused("queue", "clear", "work", "--keep-leased")
    assert cli.json("queue", "clear", "work", "--keep-leased", "--yes")["removed"] == 2
    cli.ok("push", "orders", stdin="1\n")
    assert "cleared as a whole" in cli.refused("queue", "clear", "orders", "--keep-leased", "--yes")


def test_every_option_has_a_flag_and_a_meaning(cli: Invoke) -> None:
    said = cli.ok("queue", "create", "--help").out
    for name in QueueOptions.__struct_fields__:
        assert f"--{name.replace('_', '-')}" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("create", "q", "--kind", "work", "--retry-limit", "1"), "an option of ordered queues"),
        (("set", "there", "-o", "maxAttempts=1"), "an option of work queues"),
        (("create", "q", "--lease-time", "soon"), "--lease-time must be a duration"),
        (("create", "q", "--retry-limit", "x"), "--retry-limit must be a whole number"),
        (("create", "q", "-o", "leaseTme=1"), "did you mean leaseTime?"),
        (("create", "q", "-o", "leaseTime"), "must be NAME=VALUE"),
        (("create", "q", "-o", "deadLetterQueue=perhaps"), "must be true or false"),
        (("create", "q", "--dead-queue", "nowhere"), "nowhere"),
        (("create", "there"), "`monarq queue set there`"),
        (("set", "there"), "name an option"),
        (("set", "ther", "--lease-time", "1"), "did you mean 'there'?"),
        (("show", "elsewhere"), "`monarq queue list`"),
        (("pause", "elsewhere"), "there is no queue"),
        (("delete", "elsewhere", "--yes"), "there is no queue"),
        (("clear", "elsewhere", "--yes"), "there is no queue"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(
    cli: Invoke, arguments: tuple[str, ...], reason: str
) -> None:
    cli.ok("queue", "create", "there")
    assert reason in cli.refused("queue", *arguments)
    assert [row["queue"] for row in cli.json("queue", "list")] == ["there"]
