"""What a page can watch: each topic tells all of it first, and then what has changed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec

from monarq.errors import (
    InvalidRequestError,
    MonarqError,
    NotFoundError,
    StoreUnavailableError,
)
from monarq.model import ItemState
from monarq.server.service import Service
from monarq.server.watch.overview import overview
from monarq.server.watch.sampler import Sight
from monarq.server.watch.streams import Told
from monarq.server.watch.views import View
from monarq.store.contract import Store
from monarq.times import iso
from monarq.wire.dashboard import OverviewSight

T = TypeVar("T")

MOST_ROWS = 500
_OUTPUT_SECONDS = 1.0
_MOST_OUTPUT = 256 << 10

_encode = msgspec.json.Encoder().encode


def overview_of(service: Service, sight: Sight) -> OverviewSight:
    return overview(
        sight,
        service.broker.health(),
        now=service.now(),
        version=service.version,
        is_postgres=service.is_postgres,
    )


def _shared_overview(service: Service, sight: Sight) -> OverviewSight:
    """Made once for all who watch."""
    if service.overview is None or service.overview[0] is not sight:
        service.overview = (sight, overview_of(service, sight))
    return service.overview[1]


async def watch_overview(service: Service) -> Told:
    told: dict[str, bytes] = {}
    async for sight in _sights(service):
        fields = msgspec.structs.asdict(_shared_overview(service, sight))
        changed: dict[str, Any] = {}
        for name, value in fields.items():
            seen = _encode(_without_time(name, value))
            if name != "at" and told.get(name) != seen:
                told[name] = seen
                changed[name] = value
        if changed:
            yield "overview", {"at": fields["at"], **changed}


def _without_time(name: str, value: Any) -> Any:
    """What passes by itself is no change."""
    if name == "health":
        return msgspec.structs.replace(value, uptime_seconds=0.0)
    return value


async def watch_queues(service: Service) -> Told:
    async for view, names, missed in _changes(service, lambda view: view.changed_queues):
        queues = view.now.queues
        shown = sorted(name for name in names if name in queues)[:MOST_ROWS]
        yield (
            "queues",
            {
                "at": iso(view.now.at),
                "changed": [view.queue_line(queues[name]) for name in shown],
                "gone": sorted(names - queues.keys())[:MOST_ROWS],
                "total": len(queues),
                "more": missed or len(names) > MOST_ROWS,
            },
        )


async def watch_groups(service: Service) -> Told:
    async for view, places, missed in _changes(service, lambda view: view.changed_groups):
        groups = view.now.groups
        there = sorted(place for place in places if place[1] in groups.get(place[0], {}))
        gone = sorted(place for place in places if place[1] not in groups.get(place[0], {}))
        yield (
            "groups",
            {
                "at": iso(view.now.at),
                "changed": [
                    view.group_line(groups[queue][name]) for queue, name in there[:MOST_ROWS]
                ],
                "gone": [{"queue": queue, "name": name} for queue, name in gone[:MOST_ROWS]],
                "total": view.now.group_count(),
                "more": missed or len(places) > MOST_ROWS,
            },
        )


async def _changes(
    service: Service, changed: Callable[[View], set[T]]
) -> AsyncIterator[tuple[View, set[T], bool]]:
    """The first view, and then each that has changes, with what they are about; and whether
    views were missed, so that nobody knows what else has changed."""
    seen = -1
    async for sight in _sights(service):
        view = sight.view
        if not view.now.at:
            continue
        first, is_next = seen < 0, view.version == seen + 1
        seen = view.version
        names = changed(view) if is_next else set()
        if first or not is_next or names:
            yield view, names, not first and not is_next


async def watch_queue(service: Service, queue: str) -> Told:
    told = b""
    async for sight in _sights(service):
        view = sight.view
        if not view.now.at:
            continue
        flow = view.now.queues.get(queue)
        if flow is None:
            if told != b"gone":
                told = b"gone"
                yield "queue", {"gone": True}
            continue
        groups = [view.group_line(group) for group in view.now.groups.get(queue, {}).values()]
        groups.sort(key=lambda line: line.name)
        shown = {"line": view.queue_line(flow), "groups": groups[:MOST_ROWS]}
        seen = _encode(shown)
        if seen != told:
            told = seen
            yield "queue", {"at": iso(view.now.at), **shown}


async def watch_workers(service: Service) -> Told:
    told = b""
    async for sight in _sights(service):
        workers = sight.findings.workers
        seen = _encode(
            [msgspec.structs.replace(line, heartbeat_at="", silent_seconds=0.0) for line in workers]
        )
        if seen != told:
            told = seen
            yield "workers", {"at": iso(sight.view.now.at), "workers": workers}


async def watch_pipeline(service: Service) -> Told:
    told: tuple[int, int] | None = None
    async for sight in _sights(service):
        if sight.pipeline_mark != told:
            told = sight.pipeline_mark
            yield "pipeline", {}


async def _sights(service: Service) -> Any:
    """Each new one, as long as somebody takes them."""
    sampler = service.sampler
    async with sampler.watching():
        # What was seen for whoever watched last may be old.
        with contextlib.suppress(MonarqError):
            await sampler.current()
        seen = -1
        while True:
            sight = await sampler.next_sight(seen)
            seen = sight.view.version
            yield sight


# --- the output of a job -----------------------------------------------------------------------


async def watch_item(service: Service, item_id: str) -> Told:
    """What a job prints, as it prints it. The loop is slow enough to cost nothing; it ends with
    the job."""
    attempt, start = 0, 0
    told: tuple[Any, ...] = ()
    while True:
        try:
            store: Store = service.broker.store
            item = await store.get_item(item_id)
            is_new = item.attempts != attempt
            part = None
            if item.attempts:
                part = await store.read_output(
                    item_id, item.attempts, start=0 if is_new else start, max_bytes=_MOST_OUTPUT
                )
        except (NotFoundError, InvalidRequestError):
            yield "item", {"gone": True}
            return
        except StoreUnavailableError:
            await asyncio.sleep(_OUTPUT_SECONDS)
            continue
        attempt = item.attempts
        data = part.data if part is not None else b""
        start = part.next if part is not None else 0
        state = (item.state, item.attempts, item.error, item.consumer)
        if data or is_new or state != told:
            told = state
            yield (
                "item",
                {
                    "state": item.state,
                    "attempt": attempt,
                    "attempts": item.attempts,
                    "error": item.error,
                    "consumer": item.consumer,
                    "output": base64.b64encode(data).decode(),
                    "next": start,
                    "reset": is_new,
                },
            )
        if len(data) >= _MOST_OUTPUT:
            continue
        if item.state in (ItemState.DONE, ItemState.DEAD, ItemState.CANCELLED):
            return
        await asyncio.sleep(_OUTPUT_SECONDS)
