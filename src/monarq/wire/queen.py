"""What Queen's clients, test suites and command line send, and Monarq takes without using it.

A field or parameter of this table is dropped, and named in the answer's header `Monarq-Ignored`.
Any other unknown one is refused. `docs/queen-clients.md` prints the table.
"""

from __future__ import annotations

from typing import NamedTuple

IGNORED_HEADER = "Monarq-Ignored"


class Ignored(NamedTuple):
    calls: tuple[str, ...]
    """Method and path of the routes, such as `POST /api/v1/push`."""
    places: tuple[str, ...]
    """Query parameters such as `?from`, and fields of the body such as `items[].producerSub`."""
    sender: str
    reason: str


_POP_QUEUE = (
    "GET /api/v1/pop/queue/{queue}",
    "GET /api/v1/pop/queue/{queue}/partition/{partition}",
)
_SUBJECT = "a message's producer is the subject of the caller's credentials"

IGNORED = (
    Ignored(("POST /api/v1/push",), ("items[].producerSub",), "test suites", _SUBJECT),
    Ignored(
        ("POST /api/v1/transaction",),
        ("operations[].items[].producerSub",),
        "test suites",
        _SUBJECT,
    ),
    Ignored(
        _POP_QUEUE,
        ("?namespace", "?task"),
        "all clients",
        "a pop of one queue chooses no queues by their labels",
    ),
    Ignored(
        (*_POP_QUEUE, "GET /api/v1/pop"),
        ("?frames",),
        "Python client 2.6.0 with `framed_pop`",
        "answers are JSON, which that client reads too",
    ),
    Ignored(
        ("POST /api/v1/traces",),
        ("consumerGroup",),
        "Python, JavaScript and Go clients",
        "a trace belongs to a message, not to a group",
    ),
    Ignored(
        ("GET /api/v1/status/queues/{queue}",),
        ("?includePartitions",),
        "Go client, `queenctl partition list`",
        "the answer always has the partitions",
    ),
    Ignored(
        (
            "GET /api/v1/status",
            "GET /api/v1/status/queues",
            "GET /api/v1/analytics/queue-lag",
            "GET /api/v1/analytics/queue-parked-replicas",
            "GET /api/v1/analytics/retention",
            "GET /api/v1/analytics/system-metrics",
            "GET /api/v1/analytics/worker-metrics",
        ),
        ("?from", "?to"),
        "Python, JavaScript and Go clients, `queenctl analytics`",
        "the figures are those of now",
    ),
)


def ignored_parameters(method: str, path: str) -> list[str]:
    """Return the names of the query parameters that a route ignores."""
    return [place[1:] for place in _places(method, path) if place.startswith("?")]


def ignored_fields(method: str, path: str) -> list[str]:
    """Return the places in the body that a route ignores, such as `items[].producerSub`."""
    return [place for place in _places(method, path) if not place.startswith("?")]


def _places(method: str, path: str) -> list[str]:
    call = f"{method} {path}"
    return [place for one in IGNORED if call in one.calls for place in one.places]


def ignored_table() -> str:
    """Return the table as Markdown."""
    rows = [
        f"| {_joined(one.calls)} | {_joined(one.places)} | {one.sender} | {one.reason} |"
        for one in IGNORED
    ]
    return "\n".join(["| call | ignored | sent by | because |", "|---|---|---|---|", *rows]) + "\n"


def _joined(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
