"""The delay before a failed message or item is delivered again.

This is the only formula in Python. PostgreSQL has the same one in `procedures/retries.sql`;
`tests/store/test_retries.py` compares the two.
"""

from __future__ import annotations

from monarq.clock import SECOND

LONGEST_SECONDS = 10 * 365 * 86_400.0


def retry_delay(
    attempts: int,
    *,
    delay: float | None = None,
    base: float | None = None,
    cap: float | None = None,
    jitter: float | None = None,
) -> int:
    """Return the microseconds between a failed attempt and the next delivery.

    A fixed `delay` (ordered queues) is in milliseconds. Without it, an item waits `base` ^
    `attempts` seconds, where `attempts` includes the failed one; without both, it does not wait.
    The wait is at most `cap` seconds, and never more than ten years. `jitter` is the fraction of
    the wait that is added to it; the caller draws it at random.
    """
    if delay is not None:
        seconds = delay / 1_000
    elif base is not None:
        seconds = _power(base, attempts)
    else:
        seconds = 0.0
    longest = LONGEST_SECONDS if cap is None else min(cap, LONGEST_SECONDS)
    return round(SECOND * (1 + (jitter or 0.0)) * min(seconds, longest))


def _power(base: float, attempts: int) -> float:
    try:
        seconds: float = float(base) ** float(attempts)
    except OverflowError:
        return LONGEST_SECONDS
    return seconds
