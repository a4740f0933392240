"""Which store or broker a command works on, and what is said of one that it cannot."""

import time
from pathlib import Path

from monarq.model import PushStatus
from tests.cli.invoking import Invoke
from tests.server.serving import ServerProcess


def test_a_place_that_cannot_be_is_told_at_once(cli: Invoke) -> None:
    began = time.monotonic()
    said = cli.refused("list", "--url", "http://127.0.0.1:1")
    assert time.monotonic() - began < 10
    assert "start one with `monarq serve`" in said
    assert "not both" in cli.refused("list", "--url", "http://x", "--store", "memory:")
    assert "--url must be like" in cli.refused("list", "--url", "localhost:6632")
    assert "--url must be like" in cli.refused("list", "--url", "http://[::1")
    assert "no kind of store" in cli.refused("list", "--store", "mysql://x")
    said = cli.refused("list", "--store", "postgresql://nobody@127.0.0.1:1/x")
    assert "correct --store or MONARQ_STORE" in said


def test_a_store_with_a_mistyped_name_is_not_made_by_looking(cli: Invoke, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/no/such.db"
    for command in (
        "list",
        "status",
        "show x",
        "queue list",
        "tail q",
        "export",
        "worker list",
        "top --once",
        "groups list",
        "dlq list",
    ):
        assert "there is no store" in cli.refused(*command.split(), "--store", store)
        assert "there is no store" in cli.refused(*command.split(), MONARQ_STORE=store)
    assert cli("doctor", "--store", store).code == 1
    assert not (tmp_path / "no").exists()
    assert cli.json("list") == [], "one's own is empty, and no mistake"


def test_what_is_typed_wins_over_a_variable(cli: Invoke, server: ServerProcess) -> None:
    cli.ok("push", "here", "1")
    cli.ok("push", "there", "1", "--url", server.url)
    by_variable = cli.json("queue", "list", MONARQ_URL=server.url)
    assert [row["queue"] for row in by_variable] == ["there"]
    store = f"sqlite:///{cli.environment['XDG_DATA_HOME']}/monarq/monarq.db"
    typed = cli.json("queue", "list", "--store", store, MONARQ_URL=server.url)
    assert [row["queue"] for row in typed] == ["here"]


def test_a_caller_without_the_role_is_told_what_is_missing(cli: Invoke) -> None:
    keys = {
        role: cli.json("api-key", "create", role, "--role", role)["key"]
        for role in ("read", "write")
    }
    file = f"{cli.environment['XDG_DATA_HOME']}/monarq/api-keys.json"
    with ServerProcess({"store": "memory:", "auth": True, "api_keys": file}) as server:
        place = ("--url", server.url)
        assert "--token" in cli.refused("list", *place)
        assert "--token" in cli.refused("list", *place, "--token", "wrong")
        reading = (*place, "--token", keys["read"])
        assert cli.json("list", *reading) == []
        assert "higher role" in cli.refused("push", "orders", "1", *reading)
        pushed = cli.json("push", "orders", "1", *place, MONARQ_TOKEN=keys["write"])
        assert pushed["status"] == PushStatus.QUEUED
        assert "higher role" in cli.refused("enqueue", "true", *place, "--token", keys["write"])


def test_queues_that_are_encrypted_are_read_with_the_keys_that_are_set(cli: Invoke) -> None:
    key = {"MONARQ_ENCRYPTION_KEYS": "ab" * 32}
    cli.ok("queue", "create", "secret", "--encryption-enabled", **key)
    cli.ok("push", "secret", '"hidden"', **key)
    assert cli.json("tail", "secret", **key)[0]["payload"] == "hidden"
    assert "key" in cli.refused("pop", "secret")
