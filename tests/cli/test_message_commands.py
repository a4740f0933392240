"""`monarq push`, `pop`, `ack`, `tail`, `groups`, on each store and over HTTP."""

import json
from pathlib import Path

import pytest

from monarq.client.client import Client
from monarq.model import Push, PushItem, QueueKind
from tests.cli.invoking import Invoke


def test_what_was_pushed_is_popped_and_acked_by_another_command(anywhere: Invoke) -> None:
    pushed = anywhere.json("push", "orders", '{"n": 1}', "--partition", "eu", "--id", "o1")
    assert (pushed["status"], pushed["transaction_id"]) == ("queued", "o1")
    assert anywhere.json("push", "orders", "2", "-p", "eu", "--id", "o1")["status"] == "duplicate"
    anywhere.ok("push", "orders", "plain words", "-p", "eu")

    popped = anywhere.json("pop", "orders", "--group", "billing", "--batch", "5")
    assert [message["payload"] for message in popped["messages"]] == [{"n": 1}, "plain words"]
    first, second = (message["id"] for message in popped["messages"])
    lease = ("--lease", popped["lease"], "--group", "billing")
    [answer] = anywhere.json("ack", first, *lease)
    assert (answer["count"], answer["error"]) == (1, None)
    again = anywhere("ack", first, *lease, "--json")
    assert (again.code, again.json[0]["code"]) == (1, "already_acked")
    [dead] = anywhere.json("ack", second, *lease, "--status", "dead", "--error", "no card")
    assert dead["dead"] == 1
    [letter] = anywhere.json("dlq", "list")
    assert (letter["error"], letter["group"]) == ("no card", "billing")

    # The other groups have all of it before them.
    other = anywhere.json("pop", "orders", "-g", "shipping", "-n", "5", "--auto-ack")
    assert (len(other["messages"]), other["lease"]) == (2, None)


def test_a_whole_lease_is_acked_as_pop_says_it(cli: Invoke) -> None:
    cli.ok("push", "orders", stdin="1\n2\n")
    popped = cli.ok("pop", "orders", "-n", "2", "-g", "billing")
    assert popped.out == "1\n2\n", "payloads alone go to stdout"
    [line] = [line for line in popped.err.splitlines() if line.startswith("when done: monarq ")]
    cli.ok(*line.removeprefix("when done: monarq ").split())
    assert cli.json("groups", "list")[0]["lag"] == 0


def test_lines_are_pushed_in_order_and_a_bad_one_stops_it_where_it_says(
    cli: Invoke, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    lines = [str(number) for number in range(1200)]
    file.write_text("\n".join([*lines, '{"broken', "after"]))
    said = cli.refused("push", "numbers", "--file", str(file))
    assert "line 1201: the payload is not JSON" in said
    assert "1,000 were pushed before; line 1001 and those behind it were not" in said
    popped = cli.json("pop", "numbers", "--batch", "2000")["messages"]
    assert [message["payload"] for message in popped] == list(range(1000))
    assert cli.json("push", "others", stdin="\n".join(lines))["pushed"] == 1200


@pytest.mark.parametrize("payload", ["1e400", '{"a":[1e400]}', "9" * 5_000])
def test_a_payload_that_python_cannot_hold_is_shown_as_its_text(
    cli: Invoke, tmp_path: Path, payload: str
) -> None:
    address = f"sqlite:///{tmp_path / 'store.db'}"
    with Client(address) as client:
        client.admin.configure("work", kind=QueueKind.WORK)
        data = payload.encode()
        items = [PushItem("q", data), PushItem("q", b"2"), PushItem("work", data, "Default", "one")]
        client.push(Push(items))
    there = ("--store", address)
    assert [row["payload"] for row in cli.json("tail", "q", *there)] == [payload, 2]
    assert json.dumps(payload) in cli.ok("tail", "q", *there).out
    popped = cli.json("pop", "q", "--batch", "2", *there)["messages"]
    assert [message["payload"] for message in popped] == [payload, 2]
    assert cli.json("show", "one", *there)["payload"] == payload
    assert payload in cli.ok("show", "one", *there).out
    [item] = cli.json("pop", "work", *there)["messages"]
    assert item["payload"] == payload
    cli.ok("ack", item["id"], "--status", "dead", *there)
    assert cli.json("dlq", "show", "one", *there)["payload"] == payload


def test_text_is_pushed_as_it_is_if_so_told(cli: Invoke) -> None:
    cli.ok("push", "q", '{"broken', "--text")
    cli.ok("push", "q", "007")
    cli.ok("push", "q", "7", "--text")
    cli.ok("push", "q", "-5")
    payloads = [each["payload"] for each in cli.json("tail", "q")]
    assert payloads == ['{"broken', "007", "7", -5]


def test_items_of_a_work_queue_have_priority_and_time(anywhere: Invoke) -> None:
    anywhere.ok("queue", "create", "work", "--kind", "work")
    anywhere.ok("push", "work", '"low"', "--priority", "1")
    anywhere.ok("push", "work", '"high"', "--priority", "9")
    anywhere.ok("push", "work", '"later"', "--priority", "9", "--run-at", "+1h")
    popped = anywhere.json("pop", "work", "-n", "5")["messages"]
    assert [message["payload"] for message in popped] == ["high", "low"]


def test_tail_shows_the_newest_of_all_partitions_and_consumes_nothing(anywhere: Invoke) -> None:
    for number in range(6):
        anywhere.ok("push", "orders", str(number), "-p", f"p{number % 3}")
    assert [row["payload"] for row in anywhere.json("tail", "orders", "-n", "4")] == [2, 3, 4, 5]
    only = anywhere.json("tail", "orders", "--partition", "p1")
    assert [row["payload"] for row in only] == [1, 4]
    assert anywhere.json("queue", "show", "orders")["pending"] == 6
    assert "p2 #2  5" in anywhere.ok("tail", "orders").out


def test_a_dry_seek_says_what_the_real_one_does(anywhere: Invoke) -> None:
    for number in range(6):
        anywhere.ok("push", "orders", str(number), "-p", f"p{number % 2}")
    for _ in range(2):
        anywhere.ok("pop", "orders", "-g", "billing", "-n", "3", "--auto-ack")
    seek = ("groups", "seek", "billing", "orders", "--to")
    for place, replayed, skipped, lag in (
        ("start", 6, 0, 6),
        ("end", 0, 6, 0),
        ("2", 4, 0, 4),
        ("-1h", 2, 0, 6),
        ("now", 0, 6, 0),
    ):
        dry = anywhere.json(*seek, place, "--dry-run")
        assert (dry["replayed"], dry["skipped"], dry["lag"]) == (replayed, skipped, lag), place
        before = anywhere.json("groups", "list", "--group", "billing")[0]["lag"]
        done = anywhere.json(*seek, place)
        assert (done["replayed"], done["lag"]) == (replayed, lag)
        assert before + replayed - skipped == lag
    assert anywhere.json(*seek, "start", "-p", "p0")["lag"] == 3
    assert anywhere.json("groups", "delete", "billing", "--yes")["queues"] == 1
    assert anywhere.json("groups", "list") == []


def test_an_export_is_imported_once_however_often(anywhere: Invoke, tmp_path: Path) -> None:
    anywhere.ok("queue", "create", "orders", "--retry-limit", "9")
    anywhere.ok("push", "orders", '{"n": 1}', "-p", "eu", "--id", "o1")
    anywhere.ok("push", "orders", stdin="2\n3\n")
    anywhere.ok("enqueue", "echo hi", "--id", "j1", "--priority", "7")
    file = str(tmp_path / "all.jsonl")
    assert anywhere.json("export", "--file", file)["exported"] == 4
    to_stdout = anywhere.ok("export").out.splitlines()
    assert sorted(map(json.loads, to_stdout), key=str) == sorted(
        map(json.loads, Path(file).read_text().splitlines()), key=str
    )
    for queue in ("orders", "jobs"):
        anywhere.ok("queue", "delete", queue, "--yes")

    assert anywhere.json("import", file) == {"imported": 4, "duplicates": 0}
    assert anywhere.json("import", file) == {"imported": 0, "duplicates": 4}
    assert anywhere.json("queue", "show", "orders")["options"]["retryLimit"] == 9
    by_partition = {row["partition"]: row["payload"] for row in anywhere.json("tail", "orders")}
    assert by_partition == {"eu": {"n": 1}, "Default": 3}
    [job] = anywhere.json("list")
    assert (job["id"], job["command"], job["priority"]) == ("j1", "echo hi", 7)


def test_a_job_is_imported_as_it_was_enqueued(anywhere: Invoke) -> None:
    wanted = ("--priority", "7", "--max-retries", "4", "--backoff-base", "10", "--run-at", "+1h")
    anywhere.ok("enqueue", "exit 1", "--id", "j1", *wanted)
    first, exported = anywhere.ok("export").out.splitlines()
    line = json.loads(exported)
    assert (line["maxAttempts"], line["backoffBase"], line["priority"]) == (5, 10, 7)
    anywhere.ok("queue", "delete", "jobs", "--yes")

    anywhere.ok("import", "-", stdin=f"{first}\n{exported}\n")
    [_, again] = anywhere.ok("export").out.splitlines()
    assert json.loads(again) == line | {"createdAt": json.loads(again)["createdAt"]}


@pytest.mark.parametrize("kind", ["ordered", "work"])
def test_headers_are_imported_and_exported(anywhere: Invoke, kind: str) -> None:
    queue = {"type": "queue", "queue": "q", "kind": kind, "version": 1}
    line = {"type": "message", "queue": "q", "payload": 1}
    headers = [{"lang": "é", "n": [1, None]}, {}, None]
    given = [queue, line | {"transactionId": "none"}]
    given += [line | {"transactionId": f"t{n}", "headers": each} for n, each in enumerate(headers)]
    anywhere.ok("import", "-", stdin="".join(f"{json.dumps(each)}\n" for each in given))
    [_, *exported] = map(json.loads, anywhere.ok("export").out.splitlines())
    found = {each["transactionId"]: each.get("headers") for each in exported}
    assert found == {"none": None, "t0": headers[0], "t1": {}, "t2": None}


def test_a_queue_is_imported_after_its_dead_queue(anywhere: Invoke) -> None:
    anywhere.ok("queue", "create", "z", "--kind", "work")
    anywhere.ok("queue", "create", "a", "--kind", "work", "--dead-queue", "z")
    exported = anywhere.ok("export").out
    for queue in ("a", "z"):
        anywhere.ok("queue", "delete", queue, "--yes")
    anywhere.ok("import", "-", stdin=exported)
    assert anywhere.json("queue", "show", "a")["options"]["deadQueue"] == "z"


def test_an_import_keeps_producer_attempts_and_paused_state(anywhere: Invoke) -> None:
    lines = [
        {"type": "queue", "queue": "w", "kind": "work", "paused": True, "version": 1},
        {"type": "message", "queue": "w", "transactionId": "a", "payload": 1, "attempts": 2}
        | {"producer": "ann", "priority": 5, "maxAttempts": 3, "backoffBase": 2.0},
        {"type": "queue", "queue": "q", "kind": "ordered", "version": 1},
        {"type": "message", "queue": "q", "transactionId": "b", "payload": 2, "producer": "bob"},
        {"type": "message", "queue": "q", "transactionId": "c", "payload": 3},
    ]
    given = "".join(f"{json.dumps(line)}\n" for line in lines)
    assert anywhere.json("import", "-", stdin=given)["imported"] == 3
    assert anywhere.json("pop", "w")["messages"] == []
    kept = [json.loads(line) for line in anywhere.ok("export").out.splitlines()]
    exported = {line["transactionId"]: line for line in kept if line["type"] == "message"}
    assert (exported["a"]["producer"], exported["a"]["attempts"]) == ("ann", 2)
    assert exported["b"]["producer"] == "bob"
    assert "producer" not in exported["c"]
    assert {line["queue"]: line["paused"] for line in kept if line["type"] == "queue"} == {
        "w": True,
        "q": False,
    }
    anywhere.ok("queue", "resume", "w")
    assert anywhere.json("import", "-", stdin=given)["duplicates"] == 3
    assert anywhere.json("queue", "show", "w")["state"] == "open", "a queue that is there is left"


def test_an_attempt_under_way_is_not_used_up_by_an_export(anywhere: Invoke) -> None:
    """Else an item that is exported during its last attempt would have one too many."""
    anywhere.ok("queue", "create", "w", "--kind", "work", "--max-attempts", "1")
    anywhere.ok("push", "w", "1", "--id", "a")
    [popped] = anywhere.json("pop", "w")["messages"]
    exported = anywhere.ok("export").out
    anywhere.ok("queue", "delete", "w", "--yes")
    anywhere.ok("import", "-", stdin=exported)
    [again] = anywhere.json("pop", "w")["messages"]
    assert again["attempts"] == popped["attempts"] == 1


def test_an_import_never_takes_a_message_for_another_of_the_same_number(
    cli: Invoke, tmp_path: Path
) -> None:
    """Partitions of two stores have the same numbers, and so have messages without ids."""
    first, second = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    file = str(tmp_path / "a.jsonl")
    cli.ok("push", "q", "--store", first, stdin="1\n2\n")
    cli.ok("push", "q", "--store", second, stdin="8\n9\n")
    cli.ok("export", "q", "--file", file, "--store", first)
    assert cli.json("import", file, "--store", second)["imported"] == 2
    payloads = [row["payload"] for row in cli.json("tail", "q", "--store", second)]
    assert payloads == [8, 9, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("push", "orders"), None),
        (("push", "orders", "{bad"), "--text pushes it as it is"),
        (("push", "orders", "1", "--file", "x"), "not both"),
        (("push", "orders", "--file", "/nowhere"), "cannot read /nowhere"),
        (("push", "orders", "--file", "-", "--id", "x"), "--id is for one payload"),
        (("push", "orders", "1", "--priority", "3"), "ordered queue"),
        (("push", "orders", "1", "--run-at", "someday"), "--run-at must be +5m"),
        (("push", "work", "1", "--partition", "p"), "work"),
        (("push", "jobs", "1"), "`monarq enqueue`"),
        (("pop", "orders", "--wait", "x"), "--wait must be a duration"),
        (("ack",), "name messages, or --lease"),
        (("ack", "first"), "is no message id"),
        (("tail", "work"), "is a work queue"),
        (("tail", "nothing"), "`monarq queue list`"),
        (("tail", "orders", "--partition", "p9"), "no partition"),
        (("groups", "seek", "nobody", "orders", "--to", "end"), "does not consume"),
        (
            ("groups", "seek", "billing", "orders", "--to", "x"),
            "--to must be start, end, a seq, +5m",
        ),
        (("groups", "seek", "billing", "orders", "--to", "0"), "a seq counts from 1"),
        (("groups", "delete", "nobody", "--yes"), "there is no group"),
        (("groups", "delete", "billing"), "--yes"),
        (("export", "nothing"), "there is no queue"),
        (("export", "orders", "--file", "/nowhere/x"), "cannot write"),
        (("import", "/nowhere"), "cannot read"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(
    cli: Invoke, arguments: tuple[str, ...], reason: str | None
) -> None:
    cli.ok("push", "orders", "1")
    cli.ok("pop", "orders", "-g", "billing", "--auto-ack")
    cli.ok("queue", "create", "work", "--kind", "work")
    cli.ok("enqueue", "true")
    if reason is None:
        assert cli.json(*arguments)["pushed"] == 0, "no line on stdin is no mistake"
    else:
        assert reason in cli.refused(*arguments)


def test_the_file_of_an_export_is_for_its_user_alone(cli: Invoke, tmp_path: Path) -> None:
    cli.ok("push", "q", "1")
    new, old = tmp_path / "new.jsonl", tmp_path / "old.jsonl"
    old.write_text("of an earlier export, which was longer than this one is" * 10)
    old.chmod(0o644)
    for file in (new, old):
        cli.ok("export", "q", "--file", str(file))
        assert file.stat().st_mode & 0o777 == 0o600
    assert new.read_bytes() == old.read_bytes()


def test_lines_that_export_did_not_write_are_refused(cli: Invoke) -> None:
    said = cli.refused("import", "-", stdin='{"type": "message"}\n')
    assert "line 1 is not one that `monarq export` writes" in said
    said = cli.refused(
        "import", "-", stdin='{"type":"queue","queue":"q","kind":"work","version":99}\n'
    )
    assert "newer Monarq" in said


def test_an_ack_without_a_live_lease_changes_nothing(anywhere: Invoke) -> None:
    pushed = anywhere.json("push", "orders", "1")
    said = anywhere("ack", pushed["id"])
    assert said.code == 1
    assert "lease" in said.err
    assert anywhere.json("queue", "show", "orders")["pending"] == 1


@pytest.mark.parametrize("when", ["+99999999999999d", "-9999999999d", "9999-12-31T23:59:59-12:00"])
def test_a_time_beyond_the_calendar_is_refused(cli: Invoke, when: str) -> None:
    """As is any other that is none."""
    said = "must be within the years 1 to 9999"
    assert said in cli.refused("push", "orders", "1", "--run-at", when)
    assert said in cli.refused("enqueue", "true", "--run-at", when)


@pytest.mark.parametrize(
    "arguments", [("push", "orders"), ("push", "orders", "--text"), ("enqueue",)]
)
def test_bytes_that_are_no_text_are_refused(cli: Invoke, arguments: tuple[str, ...]) -> None:
    """A terminal's bytes that are not UTF-8 reach us as halves of surrogate pairs."""
    assert "must be UTF-8 text" in cli.refused(*arguments, "caf\udce9")
