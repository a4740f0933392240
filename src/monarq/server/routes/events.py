"""The stream of events for pages that watch."""

from __future__ import annotations

from typing import Any

from monarq.errors import InvalidRequestError, MonarqError
from monarq.server.exchange import Principal, Request, StreamingResponse
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.server.watch import topics
from monarq.server.watch.sampler import INTERVAL_SECONDS
from monarq.server.watch.streams import Told
from monarq.times import iso
from monarq.wire.events import TOPICS, EventsQuery

_HEADERS = (
    (b"Cache-Control", b"no-store"),
    (b"X-Accel-Buffering", b"no"),
    (b"X-Content-Type-Options", b"nosniff"),
)


def events(service: Service, request: Request) -> StreamingResponse:
    query: EventsQuery = request.query
    wanted = [_topic(service, name, query) for name in dict.fromkeys(query.topics.split(","))]
    service.streams.check_room()
    hello: dict[str, Any] = {
        "at": iso(service.now()),
        "version": service.version,
        "intervalSeconds": INTERVAL_SECONDS,
    }
    return StreamingResponse(
        service.streams.stream(
            hello,
            wanted,
            lambda: iso(service.now()),
            lambda: _is_still_known(service, request.headers),
        ),
        content_type=b"text/event-stream",
        headers=_HEADERS,
        is_event_stream=True,
    )


async def _is_still_known(service: Service, headers: dict[str, str]) -> bool:
    """Whether what the page proved itself with is good yet: a token may have expired since."""
    if service.sessions is None:
        return True
    try:
        principal = service.sessions.authenticate(headers)
        if not isinstance(principal, Principal):
            await principal
    except MonarqError:
        return False
    return True


def _topic(service: Service, name: str, query: EventsQuery) -> Told:
    if name == "queue":
        if query.queue is None:
            raise InvalidRequestError("the topic queue needs the parameter queue")
        return topics.watch_queue(service, query.queue)
    if name == "item":
        if query.item is None:
            raise InvalidRequestError("the topic item needs the parameter item")
        return topics.watch_item(service, query.item)
    if name not in _PLAIN:
        raise InvalidRequestError(f"there is no topic {name!r}; there are {', '.join(TOPICS)}")
    return _PLAIN[name](service)


_PLAIN = {
    "overview": topics.watch_overview,
    "queues": topics.watch_queues,
    "groups": topics.watch_groups,
    "workers": topics.watch_workers,
    "pipeline": topics.watch_pipeline,
}

ROUTES = (
    Route(
        method="GET",
        path="/api/v1/events",
        handler=events,
        operation="watchEvents",
        summary="What changes, as server-sent events, for pages that watch",
        tag="dashboard",
        query=EventsQuery,
        content_type="text/event-stream",
    ),
)
