"""What is kept of a long chaos run."""

import json

from tests.chaos.checker import Violation
from tests.chaos.record import Record
from tests.chaos.running import Report


def report(seed: int, *violations: Violation) -> Report:
    return Report(
        seed=seed,
        seconds=120.5,
        faults={"kill_broker": 2, "freeze_postgres": 1},
        pushes={"queued": 90, "duplicate": 10},
        longest_push_seconds=1.5,
        delivered=200,
        refused_acks={"lease_expired": 3},
        violations=list(violations),
        brokers={"broker-0": "a log with the paths of this machine"},
    )


def test_a_soak_is_recorded_with_seed_counts_and_verdict() -> None:
    record = Record(7, minutes=60)
    record.add("postgresql", report(7))
    record.add("sqlite", report(8))
    kept = json.loads(json.dumps(record.as_json()))
    assert kept["seed"] == 7
    assert kept["minutes"] == 60
    assert kept["verdict"] == "all promises kept"
    assert kept["counts"] == {
        "rounds": 2,
        "faults": 6,
        "pushes": 200,
        "delivered": 400,
        "violations": 0,
    }
    assert [(each["store"], each["seed"]) for each in kept["rounds"]] == [
        ("postgresql", 7),
        ("sqlite", 8),
    ]
    assert kept["machine"]["cores"]
    assert "paths of this machine" not in json.dumps(kept)


def test_a_soak_that_breaks_a_promise_is_recorded_with_it() -> None:
    record = Record(7, minutes=60)
    record.add("sqlite", report(7, Violation("no message is lost", "number 5 of sender-1")))
    kept = record.as_json()
    assert kept["verdict"] == "a promise is broken"
    assert kept["counts"]["violations"] == 1
    assert kept["rounds"][0]["violations"] == [
        {"promise": "no message is lost", "what": "number 5 of sender-1"}
    ]
