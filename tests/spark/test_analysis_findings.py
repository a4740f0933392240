"""Findings: each rule says its sentence where it must, with the right figures, and is silent
where it must be."""

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from monarq.errors import ConflictError, MonarqError
from monarq.model import MAX_RECORD_BYTES
from monarq.pipeline_records import MOST_REPORT_BYTES, pack_report, unpack_report
from monarq.spark.pipelines.analyse.figures import (
    Analysis,
    Answers,
    AnswerSeries,
    ErrorSource,
    Finding,
    JobFigures,
    Severity,
)
from monarq.spark.pipelines.analyse.judging import judge
from monarq.spark.pipelines.analyse.publishing import encode_small
from tests.spark.analysis_history import micros
from tests.spark.made_figures import (
    BUCKETS,
    analysis,
    consumers,
    error,
    group,
    partition,
    pushes,
    queue,
    series,
    spread,
    stepped,
    waiting_group,
)


def texts(before: Analysis | None = None, **more: Any) -> list[str]:
    return [finding.text for finding in judge(analysis(**more), before).findings]


def only(before: Analysis | None = None, **more: Any) -> Finding:
    [found] = judge(analysis(**more), before).findings
    return found


def test_nothing_is_said_where_all_is_well() -> None:
    assert texts() == []
    assert texts(window=None, queues=[], groups=[], deliveries=[]) == []


# --- levels ---


def test_waiting_that_rose_is_told_with_both_levels_and_the_time() -> None:
    found = only(deliveries=[series(waiting_p99=stepped((35, 1.2), (25, 9.8)))])
    assert found.text == "`orders` for `billing`: p99 waiting rose from 1.2 s to 9.8 s after 14:05"
    assert found.severity is Severity.SERIOUS
    assert found.at == micros(35 * 60)


def test_waiting_that_rose_to_little_is_less_serious() -> None:
    found = only(deliveries=[series(waiting_p99=stepped((35, 0.2), (25, 0.9)))])
    assert found.severity is Severity.NOTABLE


def test_a_rise_that_is_over_is_told_whole() -> None:
    found = only(deliveries=[series(processing_p99=stepped((20, 0.5), (20, 4.0), (20, 0.4)))])
    assert found.text == (
        "`orders` for `billing`: p99 processing rose from 500 ms to 4.0 s after 13:50 "
        "and fell to 400 ms after 14:10"
    )
    assert found.severity is Severity.NOTABLE


def test_what_got_better_is_told_last() -> None:
    found = only(deliveries=[series(waiting_p99=stepped((30, 9.0), (30, 1.0)))])
    assert found.text.endswith("p99 waiting fell from 9.0 s to 1.0 s after 14:00")
    assert found.severity is Severity.MINOR


def test_the_group_that_nobody_named_is_not_named() -> None:
    found = only(
        groups=[group(of="__QUEUE_MODE__")],
        deliveries=[series(of="__QUEUE_MODE__", waiting_p99=stepped((30, 1.0), (30, 9.0)))],
    )
    assert found.text.startswith("`orders`: p99 waiting")


def test_pushes_that_rose_fell_or_stopped_are_told_in_one_unit() -> None:
    assert texts(pushes=[pushes((30, 20), (30, 120))]) == [
        "`orders`: pushes rose from 20 a minute to 120 a minute after 14:00"
    ]
    stopped = only(pushes=[pushes((30, 20), (30, 0))])
    assert stopped.text == "`orders`: pushes stopped after 14:00, from 20 a minute"
    assert stopped.severity is Severity.NOTABLE


def test_a_handful_of_pushes_more_or_less_is_chance() -> None:
    assert texts(pushes=[pushes((30, 1), (30, 4))]) == []


# --- dead letters and failures ---


def test_dead_letters_are_told_with_their_commonest_error() -> None:
    letters = ErrorSource.DEAD_LETTER
    found = only(
        queues=[queue(dead_letters=50)],
        errors=[error("TimeoutError", 47, 0.94, letters), error("KeyError", 3, 0.06, letters)],
    )
    assert found.text == (
        "`orders`: 50 dead letters, 5 % of its messages; 94 % of them are `TimeoutError`"
    )
    assert found.severity is Severity.SERIOUS


def test_the_same_kind_of_error_in_several_texts_counts_as_one() -> None:
    letters = ErrorSource.DEAD_LETTER
    kinds = [
        msgspec.structs.replace(error("TimeoutError", 2, 0.2, letters), error=f"TimeoutError: {n}")
        for n in range(4)
    ]
    found = only(queues=[queue(dead_letters=10)], errors=[*kinds, error("Key", 2, 0.2, letters)])
    assert found.text.endswith("80 % of them are `TimeoutError`")


def test_a_single_dead_letter_is_told_in_the_singular() -> None:
    found = only(
        queues=[queue(dead_letters=1)],
        errors=[error("KeyError", 1, 1.0, ErrorSource.DEAD_LETTER)],
    )
    assert found.text == "`orders`: 1 dead letter, 0.1 % of its messages; it is `KeyError`"
    assert found.severity is Severity.NOTABLE


def test_dead_letters_without_a_common_error_name_none() -> None:
    many = [error(f"E{n}Error", 1, 0.1, ErrorSource.DEAD_LETTER) for n in range(10)]
    assert texts(queues=[queue(dead_letters=10)], errors=many) == [
        "`orders`: 10 dead letters, 1 % of its messages"
    ]


@pytest.mark.parametrize(("failed", "severity"), [(300, "serious"), (80, "notable"), (9, None)])
def test_failures_are_told_from_a_rate_on(failed: int, severity: str | None) -> None:
    answers = Answers(completed=1_000 - failed, failed=failed)
    found = judge(
        analysis(
            groups=[group(answers=answers)],
            errors=[error("OSError", failed, 1.0, ErrorSource.DELIVERY)],
        ),
        None,
    ).findings
    assert [each.severity for each in found] == ([severity] if severity else [])
    if failed == 300:
        assert found[0].text == (
            "`orders` for `billing`: 30 % of the deliveries failed (300 of 1,000); "
            "all of the failures are `OSError`"
        )


def test_leases_that_ran_out_are_told_with_what_that_means() -> None:
    [found] = texts(groups=[group(answers=Answers(completed=970, expired=30))])
    assert found == (
        "`orders` for `billing`: the lease ran out on 30 deliveries (3 %): workers died, or need "
        "longer than the lease time"
    )


def test_released_messages_are_nobodys_failure() -> None:
    assert texts(groups=[group(answers=Answers(completed=1_000, released=5_000))]) == []


# --- backlog ---


def test_a_backlog_is_told_with_its_age_and_the_partition_that_holds_most() -> None:
    found = only(
        queues=[queue(partitions=24)],
        groups=[waiting_group(100, 31)],
        partitions=[partition("c-18", 20, 0.2), partition("c-17", 61, 0.61)],
    )
    assert found.text == (
        "`orders` for `billing`: 100 messages wait to be delivered; the oldest for 31 min; "
        "partition `c-17` holds 61 % of the backlog"
    )
    assert found.severity is Severity.SERIOUS


def test_an_even_backlog_names_no_partition() -> None:
    found = only(
        queues=[queue(partitions=3)],
        groups=[waiting_group(100, 2)],
        partitions=[partition("c-17", 40, 0.4)],
    )
    assert found.text == (
        "`orders` for `billing`: 100 messages wait to be delivered; the oldest for 2 min"
    )
    assert found.severity is Severity.NOTABLE


def test_a_backlog_that_grows_is_serious_however_young() -> None:
    growing = [max(place - 30, 0) * 4 for place in range(BUCKETS)]
    found = only(groups=[waiting_group(116, 5)], deliveries=[series(backlog=growing)])
    assert "100" not in found.text
    assert found.text.startswith(
        "`orders` for `billing`: 116 messages wait to be delivered and the backlog grows"
    )
    assert found.severity is Severity.SERIOUS


def test_what_was_just_pushed_is_no_backlog() -> None:
    assert texts(groups=[waiting_group(500, 0.2)]) == []
    assert texts(groups=[waiting_group(3, 20)]) == []


def test_a_group_that_stands_still_is_told_with_the_time() -> None:
    done = [10] * 40 + [0] * 20
    found = judge(
        analysis(groups=[waiting_group(80, 19)], deliveries=[series(completed=done)]), None
    ).findings
    assert found[0].text == (
        "`orders` for `billing`: nothing was answered after 14:10, "
        "though 80 messages wait to be delivered"
    )
    assert found[0].severity is Severity.SERIOUS


def test_a_queue_that_nobody_consumes_is_told() -> None:
    assert texts(groups=[], deliveries=[], queues=[queue(answers=Answers())]) == [
        "`orders`: nobody consumes it; 1,000 messages were pushed and none was delivered"
    ]


# --- unevenness ---


def test_a_hot_partition_is_told_if_there_are_enough_to_compare() -> None:
    hot = [partition("c-17", 0, 0.0, messages=400), partition("c-18", 0, 0.0, messages=30)]
    assert texts(queues=[queue(partitions=24)], partitions=hot) == [
        "`orders`: partition `c-17` got 40 % of the messages (one of 24 partitions)"
    ]
    assert texts(queues=[queue(partitions=3)], partitions=hot) == []


def test_a_slow_consumer_is_told_beside_the_others() -> None:
    assert texts(consumers=consumers(0.11, 0.68, 0.12)) == [
        "`orders` for `billing`: consumer `w1` takes 680 ms (median) where the others take 120 ms"
    ]
    assert texts(consumers=consumers(0.11, 0.2, 0.12)) == []
    assert texts(consumers=consumers(0.68)) == []
    assert texts(consumers=consumers(0.11, 0.68, count=5)) == []


def test_work_for_nothing_is_told_in_time() -> None:
    job = JobFigures(queue="mail", items=10, attempts=30, completed=10, seconds=7_200.0,
                     wasted_seconds=3_600.0, duration=None)  # fmt: skip
    assert texts(jobs=[job]) == [
        "`mail`: 50 % of the workers' time (60 min of 2 h) went to attempts that did not complete"
    ]
    assert texts(jobs=[msgspec.structs.replace(job, wasted_seconds=50.0)]) == []


# --- since the last analysis ---


def test_only_what_doubled_or_halved_since_the_last_analysis_is_told() -> None:
    before = analysis(id="r1", queues=[queue(waiting=spread(0.4)), queue("same")])
    now = [queue(waiting=spread(1.0)), queue("same", waiting=spread(1.9))]
    assert texts(before, queues=now, groups=[group(), group("same")]) == [
        "`orders`: p99 waiting 400 ms at the last analysis (31 Jan 2026, 13:30 UTC), 1.0 s now"
    ]


def test_queues_that_came_and_went_are_told() -> None:
    before = analysis(id="r1", queues=[queue(), queue("gone")])
    found = texts(before, queues=[queue(), queue("new")], groups=[group(), group("new")])
    assert found == [
        "`gone`: nothing any more; the last analysis (31 Jan 2026, 13:30 UTC) had 1,000 messages",
        "`new`: new since the last analysis (31 Jan 2026, 13:30 UTC), 1,000 messages",
    ]


# --- order and form ---


def test_the_serious_come_first_and_of_these_those_that_concern_most() -> None:
    found = judge(
        analysis(
            queues=[queue("few", dead_letters=20), queue("many", dead_letters=500), queue("calm")],
            groups=[group("few"), group("many"),
                    group("calm", answers=Answers(completed=900, failed=100))],
            pushes=[],
        ),
        None,
    ).findings  # fmt: skip
    assert [(each.severity, each.queue) for each in found] == [
        (Severity.SERIOUS, "many"), (Severity.SERIOUS, "few"), (Severity.NOTABLE, "calm"),
    ]  # fmt: skip


def test_the_same_figures_give_the_same_findings() -> None:
    made = analysis(queues=[queue(f"q{n}", dead_letters=n % 7) for n in range(40)])
    assert judge(made, None) == judge(made, None)


@pytest.mark.parametrize("queues", [1, 300])
def test_figures_fit_into_a_record_and_keep_the_busiest(queues: int) -> None:
    names = [f"queue-{number:03}" for number in range(queues)]
    made = analysis(
        queues=[queue(name) for name in names],
        groups=[group(name) for name in names],
        deliveries=[series(name, waiting_p99=[0.123456789] * BUCKETS) for name in names[::-1]],
        pushes=[],
    )
    value = encode_small(made)
    assert len(value) < MAX_RECORD_BYTES
    read = msgspec.json.decode(value, type=Analysis)
    kept = _names(read.deliveries)
    assert kept == names[: len(kept)]
    assert len(kept) >= min(queues, 50)


def _names(found: Sequence[AnswerSeries]) -> list[str]:
    return [each.queue for each in found]


def test_a_report_comes_out_of_its_record_as_it_went_in() -> None:
    page = "<p>naïve 🦋</p>" * 100_000
    packed = pack_report(page)
    assert len(packed) < MAX_RECORD_BYTES
    assert unpack_report(packed) == page


def test_a_report_of_the_largest_size_is_unpacked_and_a_larger_one_refused() -> None:
    page = "x" * MOST_REPORT_BYTES
    assert unpack_report(pack_report(page)) == page
    with pytest.raises(ConflictError, match="more than 16 MiB"):
        unpack_report(pack_report(page + "x"))


CUT = json.dumps(
    {"html_gzip": base64.b64encode(gzip.compress(b"a page" * 99, mtime=0)[:-9]).decode()}
).encode()


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"html_gzip":"x"}', b'{"html_gzip":"AAAA"}', b'{"html_gzip":""}', CUT]
)
def test_a_damaged_record_is_one_clear_error(value: bytes) -> None:
    with pytest.raises(MonarqError, match="the report is damaged"):
        unpack_report(value)
