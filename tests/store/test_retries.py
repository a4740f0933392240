"""The delay of retries is one formula: in Python, in PostgreSQL, and in the documentation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import asyncpg
import pytest

from monarq.clock import SECOND
from monarq.model.retries import LONGEST_SECONDS, retry_delay
from monarq.store import Store
from tests.documented import ROOT
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.conftest import Place

Case = tuple[int, float | None, float | None, float | None, float | None]
"""Attempts, fixed delay, base, cap and jitter."""

ATTEMPTS = (0, 1, 2, 3, 7, 12, 29, 120, 1_000_000, 2**31 - 1)
DELAYS = (None, 0, 0.25, 1, 20, 999.5, 1_000, 86_400_000, 7 * 86_400_000, 1e18, 1e308)
BASES = (None, 0, 1e-300, 0.001, 0.5, 0.999_999, 1, 1.000_001, 1.5, 2, 10, 1_000, 1e308)
CAPS = (None, 0, 1e-6, 0.5, 1, 50.5, 1_000, 3_600, LONGEST_SECONDS, 1e18, 1e308)
JITTERS = (None, 0, 0.1, 0.333_333, 1)
GRID: Sequence[Case] = (
    *itertools.product(ATTEMPTS, DELAYS, (None, 2), CAPS, JITTERS),
    *itertools.product(ATTEMPTS, (None,), BASES, CAPS, JITTERS),
)


def python(case: Case) -> int:
    attempts, delay, base, cap, jitter = case
    return retry_delay(attempts, delay=delay, base=base, cap=cap, jitter=jitter)


async def postgres(place: Place, cases: Sequence[Case]) -> list[int]:
    connection = await asyncpg.connect(place.address)
    try:
        rows = await connection.fetch(
            f"""
            select "{place.schema}".retry_delay(attempts, delay, base, cap, jitter) as delay
            from unnest($1::integer[], $2::float8[], $3::float8[], $4::float8[], $5::float8[])
                with ordinality as c (attempts, delay, base, cap, jitter, place) order by place
            """,
            *(list(column) for column in zip(*cases, strict=True)),
        )
    finally:
        await connection.close()
    return [row["delay"] for row in rows]


def documented() -> dict[Case, float]:
    """The examples of docs/model.md, with their waits in seconds."""
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    [table] = re.findall(
        r"^\| `retryDelay` \(ms\) \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    examples: dict[Case, float] = {}
    for line in table.splitlines():
        delay, base, cap, attempts, wait = (cell.strip() for cell in line.strip("|").split("|"))
        options = [float(cell) if cell else None for cell in (delay, base, cap)]
        examples[int(attempts), options[0], options[1], options[2], None] = float(wait)
    return examples


@pytest.mark.parametrize("place", POSTGRES_NAMES, indirect=True)
async def test_python_and_postgresql_agree_on_every_delay(store: Store, place: Place) -> None:
    found = await postgres(place, GRID)
    different = [
        (case, python(case), delay)
        for case, delay in zip(GRID, found, strict=True)
        if delay != python(case)
    ]
    assert different == []


@pytest.mark.parametrize("place", POSTGRES_NAMES, indirect=True)
async def test_postgresql_computes_the_documented_delays(store: Store, place: Place) -> None:
    examples = documented()
    found = await postgres(place, list(examples))
    assert found == [round(wait * SECOND) for wait in examples.values()]


def test_python_computes_the_documented_delays() -> None:
    examples = documented()
    assert len(examples) > 10
    for case, wait in examples.items():
        assert python(case) == round(wait * SECOND), case


def test_every_delay_is_within_its_bounds() -> None:
    for case in GRID:
        _, _, _, cap, jitter = case
        longest = LONGEST_SECONDS if cap is None else min(cap, LONGEST_SECONDS)
        assert 0 <= python(case) <= round(SECOND * (1 + (jitter or 0)) * longest), case


def test_jitter_comes_on_top_of_the_longest_delay() -> None:
    delay = retry_delay(100, base=1_000, cap=LONGEST_SECONDS, jitter=1)
    assert delay == 2 * LONGEST_SECONDS * SECOND
