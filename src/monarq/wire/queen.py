"""What Queen's clients, test suites and command line send, and Monarq takes without using it.

A field or parameter of this table is dropped, and named in the answer's header `Monarq-Ignored`.
Any other unknown one is refused. `docs/queen-clients.md` prints the table.
"""

from __future__ import annotations

from typing import NamedTuple

IGNORED_HEADER = "Monarq-Ignored"


class Ignored(NamedTuple):
    method: str
    path: str
    """Of the route."""
    place: str
    """A query parameter, or a field of the body such as `items[].producerSub`."""
    sender: str
    reason: str

    @property
    def name(self) -> str:
        return self.place.rpartition(".")[2]

    @property
    def is_parameter(self) -> bool:
        return self.method == "GET"


_SPAN = "the figures are those of now"
_SUBJECT = "a message's producer is the subject of the caller's credentials"

IGNORED = (
    Ignored("POST", "/api/v1/push", "items[].producerSub", "test suites", _SUBJECT),
    Ignored(
        "POST",
        "/api/v1/transaction",
        "operations[].items[].producerSub",
        "test suites",
        _SUBJECT,
    ),
    Ignored(
        "GET",
        "/api/v1/status/queues/{queue}",
        "includePartitions",
        "Go client, `queenctl partition list`",
        "the answer always has the partitions",
    ),
    Ignored("GET", "/api/v1/status", "from", "JavaScript and Python clients", _SPAN),
    Ignored("GET", "/api/v1/status", "to", "JavaScript and Python clients", _SPAN),
    Ignored("GET", "/api/v1/status/queues", "from", "JavaScript and Python clients", _SPAN),
    Ignored("GET", "/api/v1/status/queues", "to", "JavaScript and Python clients", _SPAN),
    Ignored("GET", "/api/v1/analytics/queue-lag", "from", "`queenctl analytics queue-lag`", _SPAN),
    Ignored("GET", "/api/v1/analytics/queue-lag", "to", "`queenctl analytics queue-lag`", _SPAN),
)


def ignored_of(method: str, path: str) -> list[Ignored]:
    return [one for one in IGNORED if (one.method, one.path) == (method, path)]


def ignored_table() -> str:
    """The table as Markdown."""
    rows = [
        f"| `{one.method} {one.path}` | `{one.place}` | {one.sender} | {one.reason} |"
        for one in IGNORED
    ]
    return "\n".join(["| call | ignored | sent by | because |", "|---|---|---|---|", *rows]) + "\n"
