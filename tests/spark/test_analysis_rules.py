"""The rules behind the findings, without Spark: levels, error texts, buckets, words."""

import math
import random

import pytest

from monarq.clock import DAY, SECOND
from monarq.spark.pipelines.analyse import wording
from monarq.spark.pipelines.analyse.error_kinds import kind_of, normalise
from monarq.spark.pipelines.analyse.figures import Window
from monarq.spark.pipelines.analyse.grid import MOST_BUCKETS, make_window
from monarq.spark.pipelines.analyse.levels import LEAST_POINTS, Level, find_levels

FLOOR = 0.01


def noise(seed: int, length: int, level: float = 1.0, spread: float = 0.3) -> list[float]:
    chance = random.Random(seed)
    return [level * chance.lognormvariate(0, spread) for _ in range(length)]


def firsts(levels: list[Level]) -> list[int]:
    return [level.first for level in levels]


# --- levels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_found_where_it_is_with_the_medians_of_both_sides(seed: int) -> None:
    before, after = noise(seed, 30), noise(seed + 100, 20, level=8.0)
    levels = find_levels([*before, *after], FLOOR)
    assert firsts(levels) == [0, 30]
    assert [level.value for level in levels] == pytest.approx(
        [sorted(before)[15], sorted(after)[10]], rel=0.1
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_rise_that_comes_back_is_three_levels(seed: int) -> None:
    values = [*noise(seed, 30), *noise(seed + 1, 12, level=9.0), *noise(seed + 2, 30)]
    assert firsts(find_levels(values, FLOOR)) == [0, 30, 42]


def test_spikes_are_no_change_however_high() -> None:
    values = noise(7, 60)
    values[20] = values[21] = values[40] = 1e6
    assert firsts(find_levels(values, FLOOR)) == [0]


def test_noise_is_seldom_taken_for_a_change() -> None:
    changed = sum(len(find_levels(noise(seed, 48, spread=0.3), FLOOR)) > 1 for seed in range(100))
    wild = sum(len(find_levels(noise(seed, 48, spread=0.6), FLOOR)) > 1 for seed in range(100))
    assert changed == 0
    assert wild <= 8


def test_a_slow_drift_below_the_factor_is_no_change() -> None:
    assert firsts(find_levels([1 + place / 100 for place in range(80)], FLOOR)) == [0]


def test_what_lies_below_the_floor_does_not_change() -> None:
    values: list[float | None] = [*noise(1, 20, level=0.0001), *noise(2, 20, level=0.001)]
    assert firsts(find_levels(values, 0.05)) == [0]
    assert firsts(find_levels(values, 0.00001)) == [0, 20]


def test_buckets_without_a_value_are_left_out_and_places_stay_right() -> None:
    values: list[float | None] = [None, None, *noise(3, 20), *[None] * 10, *noise(4, 20, level=9)]
    assert firsts(find_levels(values, FLOOR)) == [2, 32]


def test_too_few_points_are_one_level() -> None:
    assert find_levels([], FLOOR) == []
    assert find_levels([None, None], FLOOR) == []
    assert find_levels([3.0], FLOOR) == [Level(0, 0, 3.0)]
    short = [1.0] * LEAST_POINTS + [100.0] * (LEAST_POINTS - 1)
    assert firsts(find_levels(short, FLOOR)) == [0]


def test_nought_is_a_level_like_any_other() -> None:
    levels = find_levels([20.0] * 20 + [0.0] * 10, 5)
    assert [(level.first, level.value) for level in levels] == [(0, 20.0), (20, 0.0)]


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("TimeoutError: order 4711 took 30.5 s", "TimeoutError: order 9 took 31 s"),
        ("KeyError: 'c-17'", "KeyError: 'c-18 and more'"),
        (
            "no user 8b6f8f3e-1111-4222-8333-123456789abc",
            "no user 00000000-AAAA-4222-8333-123456789ABC",
        ),
        ("at 0x7f3a9c", "at 0xDEADBEEF01"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8 is gone",
         "commit 0000002d0ae598e95dc970b74767f19372d61af8 is gone"),
        ("  connect  to 10.0.0.1:5432\t failed\nretrying", "connect to 10.0.0.2:5433 failed"),
        ("user4711 is unknown", "user987654 is unknown"),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 3\nValueError: 3 is bad",
            "ValueError: 4 is bad",
        ),
    ],
)  # fmt: skip
def test_errors_that_differ_in_ids_and_numbers_are_the_same(first: str, second: str) -> None:
    assert normalise(first) == normalise(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("exit code 1", "exit code 137"),
        ("status 404", "status 500"),
        ("TimeoutError: a", "ValueError: a"),
        ("sha256 does not match", "sha512 does not match"),
    ],
)
def test_errors_that_differ_in_what_matters_stay_apart(first: str, second: str) -> None:
    assert normalise(first) != normalise(second)


def test_an_error_without_text_is_named() -> None:
    assert normalise(None) == normalise("") == normalise(" \n ") == "no error text"


def test_a_huge_error_is_cut() -> None:
    assert len(normalise("x" * 65_536)) <= 160


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("TimeoutError: it took long", "TimeoutError"),
        ("TimeoutError", "TimeoutError"),
        ("requests.exceptions.ReadTimeout: slow", "ReadTimeout"),
        ("java.lang.IllegalStateException: no", "IllegalStateException"),
        ("exit code 137", "exit code 137"),
        ("Note: this is no type", "Note: this is no type"),
    ],
)
def test_the_kind_of_an_error_is_its_type_if_it_names_one(error: str, kind: str) -> None:
    assert kind_of(normalise(error)) == kind


# --- time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length", [0, 1, SECOND, 90 * SECOND, 7_200 * SECOND, DAY, 40 * DAY, 400 * DAY, 90_000 * DAY]
)
def test_a_window_covers_all_of_the_time_in_few_round_buckets(length: int) -> None:
    first = 1_769_866_201_947_548
    window = make_window(first, first + length)
    assert window.start <= first
    assert window.end > first + length
    assert 1 <= window.buckets <= MOST_BUCKETS
    assert window.start % window.bucket == 0
    assert (first + length - window.start) // window.bucket == window.buckets - 1


def test_the_finest_buckets_that_are_not_too_many_are_taken() -> None:
    assert make_window(0, 96 * SECOND - 1).bucket == SECOND
    assert make_window(0, 96 * SECOND).bucket == 2 * SECOND


# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.000_012, "12 µs"),
        (0.0123, "12 ms"),
        (0.342, "342 ms"),
        (0.999_9, "1.0 s"),
        (1.2, "1.2 s"),
        (9.84, "9.8 s"),
        (9.99, "10 s"),
        (119.0, "119 s"),
        (840, "14 min"),
        (7_200 * 1.2, "2.4 h"),
        (86_400 * 3, "3 d"),
    ],
)
def test_durations_have_a_unit_and_two_digits(seconds: float, words: str) -> None:
    assert wording.duration(seconds) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [(0, "0 %"), (0.004, "0.4 %"), (0.000_001, "0.01 %"), (0.61, "61 %"), (0.9999, "99.9 %"),
     (1, "100 %")],
)  # fmt: skip
def test_shares_never_round_to_all_or_nothing(part: float, words: str) -> None:
    assert wording.share(part) == words


def test_rates_that_stand_side_by_side_have_one_unit() -> None:
    assert wording.rate(2.0) == "2.0 a second"
    assert wording.rate(1 / 3) == "20 a minute"
    assert wording.rate(2.0, 1 / 3) == "120 a minute"
    assert wording.rate(1 / 86_400) == "1.0 a day"
    assert wording.rate(0.0) == "none"


@pytest.mark.parametrize("name", ["a`b", "a\nb", "a\u202eb", "x" * 300, "\x00", "﷽"])
def test_a_name_in_a_sentence_cannot_leave_its_quotes_or_its_line(name: str) -> None:
    shown = wording.name(name)
    assert shown[0] == shown[-1] == "`"
    assert "`" not in shown[1:-1]
    assert all(one.isprintable() for one in shown)
    assert len(shown) <= 70


def test_times_say_the_day_only_if_there_are_several() -> None:
    at = 1_769_866_200 * SECOND
    day = Window(start=at, end=at + 3_600 * SECOND, bucket=60 * SECOND, first=at, last=at)
    week = Window(start=at, end=at + 7 * DAY, bucket=7_200 * SECOND, first=at, last=at)
    month = Window(start=at, end=at + 40 * DAY, bucket=DAY, first=at, last=at)
    assert wording.clock_time(at, day) == "13:30"
    assert wording.clock_time(at, week) == "31 Jan 13:30"
    assert wording.clock_time(at, month) == "31 Jan 2026"


def test_a_period_names_its_day_once() -> None:
    at = 1_769_866_200 * SECOND
    assert wording.period(at, at + 7_260 * SECOND) == "31 Jan 2026, 13:30 to 15:31 UTC"
    assert wording.period(at, at + DAY) == "31 Jan 2026, 13:30 UTC to 1 Feb 2026, 13:30 UTC"


def test_a_rate_over_a_bucket_that_was_only_begun_is_not_blown_up() -> None:
    window = Window(start=0, end=120 * SECOND, bucket=60 * SECOND, first=30 * SECOND,
                    last=61 * SECOND)  # fmt: skip
    assert window.seconds_in(0) == 30
    assert window.seconds_in(1) == 15
    assert math.isclose(window.bucket_seconds, 60)
