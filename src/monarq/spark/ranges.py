"""From bounds to positions and ranges: what of which partition is to be read.

Reads plans (which partitions there are, with their first and last seq) and compares. Reads no
message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec import Struct

from monarq.errors import ConflictError, DataLossError, InvalidRequestError, NotFoundError
from monarq.spark.access import Access, SeqRange, open_access
from monarq.spark.bounds import AtSeq, AtTime, Bound, Exact, Latest, Reached
from monarq.spark.options import ReadOptions
from monarq.spark.positions import Positions
from monarq.tables import TABLES, TableKind


class Lane(NamedTuple):
    """A partition and what is kept of it; `last_seq` is less than `first_seq` if nothing is."""

    partition_id: int
    partition: str
    first_seq: int
    last_seq: int


class Window(Struct, frozen=True):
    """Rows from this time on, and before that one, in microseconds."""

    since: int | None = None
    until: int | None = None

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None


def opened(options: ReadOptions) -> Access:
    return open_access(options.url, token=options.token, encryption_key=options.encryption_key)


# --- which table and queues --------------------------------------------------------------


def chosen_table(options: ReadOptions) -> str:
    """The table that the options name; if they name none, by the kind of the queues."""
    if options.table is not None:
        return options.table
    if options.queues is None:
        return "messages"
    kinds = {kind for _, kind in _named(options.queues, opened(options))}
    if len(kinds) > 1:
        raise InvalidRequestError(
            "the queues are of both kinds: read ordered ones with the option table=messages, "
            "and work queues with table=items"
        )
    return "items" if kinds == {"work"} else "messages"


def chosen_queues(options: ReadOptions, table: str, access: Access) -> list[str] | None:
    """The names of the queues to read; None means all. Refuses what is not there."""
    wanted_kind = {"messages": "ordered", "items": "work"}.get(table)
    if options.queues is not None:
        for name, kind in _named(options.queues, access):
            if wanted_kind is not None and kind != wanted_kind:
                raise ConflictError(
                    f"option 'queue': {name!r} is of kind {kind}, and table {table} is of "
                    f"{wanted_kind} queues; use table={'items' if kind == 'work' else 'messages'}"
                )
        return list(options.queues)
    if options.queue_pattern is not None:
        return sorted(
            info.name
            for info in access.queues()
            if fnmatchcase(info.name, options.queue_pattern)
            and wanted_kind in (None, str(info.kind))
        )
    if TABLES[table].kind is TableKind.MESSAGES:
        return sorted(info.name for info in access.queues() if str(info.kind) == "ordered")
    return None


def _named(names: Iterable[str], access: Access) -> list[tuple[str, str]]:
    kinds = {info.name: str(info.kind) for info in access.queues()}
    for name in names:
        if name not in kinds:
            raise NotFoundError(f"option 'queue': there is no queue {name!r}")
    return [(name, kinds[name]) for name in names]


# --- which messages ----------------------------------------------------------------------


def lanes_of(
    access: Access,
    queues: Iterable[str],
    partitions: Collection[str] | None = None,
    window: Window | None = None,
) -> dict[str, list[Lane]]:
    """The partitions of each queue, all or those with these names, and what is kept of them (and
    lies within the window)."""
    since, until = (None, None) if window is None else (window.since, window.until)
    found: dict[str, list[Lane]] = {}
    for queue in queues:
        plan = access.plan(queue, created_from=since, created_to=until)
        columns = (plan.column(name).to_pylist() for name in Lane._fields)
        lanes = map(Lane, *columns)
        if partitions is not None:
            found[queue] = [lane for lane in lanes if lane.partition in partitions]
        else:
            found[queue] = list(lanes)
    return found


def check_named(option: str, bound: Bound, lanes: Mapping[str, list[Lane]]) -> None:
    """Refuse exact offsets for queues and partitions that are not read."""
    if not isinstance(bound, Exact):
        return
    for queue, seqs in bound.seqs.items():
        if queue not in lanes:
            raise NotFoundError(f"option {option!r}: queue {queue!r} is not among those read")
        known = {lane.partition for lane in lanes[queue]}
        for partition in seqs:
            if partition not in known:
                raise NotFoundError(
                    f"option {option!r}: there is no partition {partition!r} to read in "
                    f"queue {queue!r}"
                )


def plan_window(starting: Bound, window: Window) -> Window:
    """What of the window may narrow a plan: where exact offsets say where to begin, what is kept
    must show, so that what is missing is noticed."""
    return Window(until=window.until) if isinstance(starting, Exact | Reached) else window


def window_of(starting: Bound, ending: Bound) -> Window:
    return Window(
        since=starting.micros if isinstance(starting, AtTime) else None,
        until=ending.micros if isinstance(ending, AtTime) else None,
    )


def starting_positions(bound: Bound, lanes: Mapping[str, list[Lane]]) -> Positions:
    """For every partition there is, the position behind which reading begins."""
    return {
        queue: {lane.partition_id: _start(bound, queue, lane) - 1 for lane in of_queue}
        for queue, of_queue in lanes.items()
    }


def _start(bound: Bound, queue: str, lane: Lane) -> int:
    match bound:
        case Latest():
            return max(lane.last_seq, lane.first_seq - 1) + 1
        case AtSeq(seq):
            return max(seq, lane.first_seq)
        case Exact(seqs):
            return seqs.get(queue, {}).get(lane.partition, lane.first_seq)
        case Reached(positions):
            return positions.get(queue, {}).get(lane.partition_id, 0) + 1
    return lane.first_seq


def ending_positions(bound: Bound, lanes: Mapping[str, list[Lane]]) -> Positions:
    """The last seq to read of every partition; also of those that are gone, if the bound is an
    offset, so that what is missing is noticed."""
    if isinstance(bound, Reached):
        return {queue: bound.positions.get(queue, {}) for queue in lanes}
    return {
        queue: {lane.partition_id: _end(bound, queue, lane) for lane in of_queue}
        for queue, of_queue in lanes.items()
    }


def _end(bound: Bound, queue: str, lane: Lane) -> int:
    match bound:
        case AtSeq(seq):
            return min(seq, lane.last_seq)
        case Exact(seqs):
            return min(seqs.get(queue, {}).get(lane.partition, 0), lane.last_seq)
        case AtTime() | Latest():
            return lane.last_seq
    return lane.first_seq - 1


def ranges_between(
    start: Positions,
    end: Positions,
    lanes: Mapping[str, list[Lane]],
    *,
    fail_on_data_loss: bool,
) -> list[SeqRange]:
    """What lies behind `start` up to `end`, as far as it is kept."""
    ranges: list[SeqRange] = []
    for queue in sorted(end):
        known = {lane.partition_id: lane for lane in lanes.get(queue, ())}
        begun = start.get(queue, {})
        for partition_id, last in end[queue].items():
            first = begun.get(partition_id, 0) + 1
            if first > last:
                continue
            lane = known.get(partition_id)
            if lane is None or lane.first_seq > first:
                if fail_on_data_loss:
                    raise _loss(queue, partition_id, first, last, lane)
                if lane is None:
                    continue
                first = lane.first_seq
            if first <= last:
                ranges.append(SeqRange(queue, partition_id, lane.partition, first, last))
    return ranges


def _loss(queue: str, partition_id: int, first: int, last: int, lane: Lane | None) -> DataLossError:
    if lane is None:
        what = f"partition {partition_id} of queue {queue!r} is gone"
    else:
        what = f"partition {lane.partition!r} of queue {queue!r} begins at seq {lane.first_seq} now"
    return DataLossError(
        f"messages that were still to be read have been removed: seq {first} to {last} were "
        f"wanted, but {what}. Keep messages for longer (retentionSeconds), or go on with what is "
        "left by the option failOnDataLoss=false"
    )


def check_kept(ranges: Iterable[SeqRange], access: Access) -> None:
    """Fail if any of these was removed from its front, or as a whole."""
    wanted: dict[str, list[SeqRange]] = {}
    for one in ranges:
        wanted.setdefault(one.queue, []).append(one)
    for queue, of_queue in wanted.items():
        try:
            lanes = lanes_of(access, [queue])[queue]
        except NotFoundError:
            lanes = []
        known = {lane.partition_id: lane for lane in lanes}
        for one in of_queue:
            lane = known.get(one.partition_id)
            if lane is None or lane.first_seq > one.first_seq:
                raise _loss(queue, one.partition_id, one.first_seq, one.last_seq, lane)
