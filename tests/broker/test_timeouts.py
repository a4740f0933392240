"""When waiting pops give up: on time, and without a ring for those who were answered before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from monarq.broker.alarms import Alarm, Alarms
from monarq.broker.timeouts import SLICE, Timeouts
from monarq.clock import SECOND, ManualClock


class CountedAlarms(Alarms):
    """Counts how often an alarm was set, each of which wakes the loop once."""

    count = 0

    def set(self, when: int, callback: Callable[[], None]) -> Alarm:
        self.count += 1
        return super().set(when, callback)


async def turn() -> None:
    """Until an alarm that is due has rung, and the one that it set."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_each_gives_up_within_a_slice_of_its_time_and_never_before() -> None:
    clock = ManualClock()
    alarms = Alarms(clock, asyncio.get_running_loop())
    gone: dict[int, int] = {}
    timeouts: Timeouts[int] = Timeouts(alarms, lambda number: gone.setdefault(number, clock.now()))
    random = Random(7)
    start = clock.now()
    deadlines = {number: start + random.randrange(SECOND) for number in range(300)}
    slices = {number: timeouts.add(number, deadlines[number]) for number in deadlines}
    taken_out = set(random.sample(sorted(deadlines), 200))
    for number in taken_out:
        timeouts.remove(number, slices[number])
    while clock.now() < start + SECOND + SLICE:
        clock.advance(0.001)
        await turn()
    assert gone.keys() == deadlines.keys() - taken_out
    for number, when in gone.items():
        assert deadlines[number] <= when <= deadlines[number] + SLICE + 1_000
    alarms.close()


async def test_those_who_were_answered_before_their_time_wake_nobody_later() -> None:
    clock = ManualClock()
    alarms = CountedAlarms(clock, asyncio.get_running_loop())
    gone: list[int] = []
    timeouts: Timeouts[int] = Timeouts(alarms, gone.append)
    for number in range(1_000):
        # One after the other, each answered before the next one comes.
        timeouts.remove(number, timeouts.add(number, clock.now() + 30 * SECOND))
        clock.advance(0.010)
        await turn()
    before = alarms.count
    for _ in range(4_000):
        clock.advance(0.010)
        await turn()
    assert not gone
    assert alarms.count - before <= 1
    alarms.close()


async def test_one_who_comes_to_a_slice_that_was_emptied_gives_up_on_time() -> None:
    clock = ManualClock()
    alarms = Alarms(clock, asyncio.get_running_loop())
    gone: list[str] = []
    timeouts: Timeouts[str] = Timeouts(alarms, gone.append)
    deadline = clock.now() + SECOND
    timeouts.remove("first", timeouts.add("first", deadline))
    timeouts.add("second", deadline)
    timeouts.remove("later", timeouts.add("later", deadline + SECOND))
    clock.advance(1 + SLICE / SECOND)
    await turn()
    assert gone == ["second"]
    timeouts.add("last", deadline + SECOND)
    clock.advance(1)
    await turn()
    assert gone == ["second", "last"]
    alarms.close()
