"""`monarq bench`: figures for people and for programs, and an exit code that tells the truth."""

import json
import re
import socket

import pytest

from tests.cli.conftest import Run

SHORT = ("--duration", "0.5", "--warm-up", "0.1", "--concurrency", "4", "--partitions", "4")


@pytest.mark.parametrize("mode", ["push", "pop", "end-to-end"])
def test_a_load_on_a_broker_of_its_own_answers_in_json(mode: str, monarq: Run) -> None:
    more = ("--rate", "100") if mode == "end-to-end" else ()
    done = monarq("bench", mode, "--json", "--backlog", "500", *SHORT, *more)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["errors"] == {}
    assert found["missing"] == 0
    assert found["messagesPerSecond"] > 0
    wanted = {"push": {"push"}, "pop": {"pop", "ack"}, "end-to-end": {"push", "ack", "endToEnd"}}
    assert set(found["latencyMs"]) == wanted[mode]
    for latency in found["latencyMs"].values():
        assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    if mode == "end-to-end":
        assert found["openLoop"] is True
        assert found["pushed"] == 50


def test_acks_that_ask_for_the_next_need_few_requests_more_than_there_are_messages(
    monarq: Run,
) -> None:
    done = monarq("bench", "pop", "--ack-and-pop", "--json", "--backlog", "100", *SHORT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["errors"] == {}
    assert 0 < found["acked"] <= found["popped"] <= 100
    assert found["requestsPerSecond"] < 2 * found["messagesPerSecond"]


def test_people_get_a_table(monarq: Run) -> None:
    done = monarq("bench", "push", *SHORT)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^push: [\d,]+ messages/s of 256 bytes$", done.stdout, re.MULTILINE)
    assert re.search(r"^push +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ *$", done.stdout, re.MULTILINE)


def test_every_group_gets_every_message(monarq: Run) -> None:
    done = monarq("bench", "end-to-end", "--json", "--groups", "3", "--rate", "60", *SHORT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["missing"] == 0
    assert found["latencyMs"]["endToEnd"]["count"] == found["pushed"] * 3


def test_a_broker_that_is_not_there_is_one_clear_line(monarq: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        done = monarq("bench", "push", "--url", url, *SHORT)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"monarq: cannot speak to {url}")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--batch", "0"),
        ("--size", "1"),
        ("--duration", "0"),
        ("--rate", "-1"),
        ("--url", "ftp://a"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(wrong: tuple[str, str], monarq: Run) -> None:
    done = monarq("bench", "push", *wrong)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_store_that_cannot_be_opened_is_told(monarq: Run) -> None:
    done = monarq("bench", "push", "--store", "mysql://a", *SHORT)
    assert done.returncode == 1
    assert "store" in done.stderr
    assert "Traceback" not in done.stderr
