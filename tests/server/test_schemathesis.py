"""The whole API of a real server, driven from its own description by schemathesis.

Every operation gets the values at and beyond the edges of what its schema allows, and some at
random. Nothing may be a 5xx, every answer must have a status and a shape that is described, what
the schema forbids must be refused, and what it allows must be taken.
"""

from collections import defaultdict
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from monarq.server.routes import ROUTES
from tests.server.conftest import StartServer
from tests.server.serving import ServerProcess

pytestmark = pytest.mark.slow

#: `wait` would make every pop last as long as its time-out (tests of pop have it); page tokens
#: cannot be guessed (tests of paging have them); nothing else is left out.
NOT_GENERATED = {"wait", "after", "pivot"}

#: Longer lists than this are not built just to be refused (tests of push have it).
MOST_ITEMS = 20

#: What is allowed field by field may still be refused as a whole: exactly one of several fields,
#: a filter or `all`, options of another kind of queue, a payload that is no command, a column that
#: a table does not have, a time that is too far away; or a whole number that is written as 1.0,
#: which the schema cannot forbid.
JUDGED_AS_A_WHOLE = {
    "DELETE /api/v1/dlq",
    "GET /api/v1/analytics/queue-ops",
    "GET /api/v1/export/log-end",
    "GET /api/v1/items",
    "GET /api/v1/pop",
    "GET /api/v1/pop/queue/{queue}",
    "GET /api/v1/pop/queue/{queue}/partition/{partition}",
    "GET /api/v1/status/analytics",
    "POST /api/v1/ack",
    "POST /api/v1/ack/batch",
    "POST /api/v1/configure",
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek",
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek/preview",
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/skip",
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/seek",
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/seek/preview",
    "POST /api/v1/consumer-groups/{group}/subscription",
    "POST /api/v1/dlq/redrive",
    "POST /api/v1/export/archived",
    "POST /api/v1/export/messages",
    "POST /api/v1/export/rows",
    "POST /api/v1/import",
    "POST /api/v1/items/{id}/output",
    "POST /api/v1/jobs",
    "POST /api/v1/pop",
    "POST /api/v1/pop/queue/{queue}",
    "POST /api/v1/pop/queue/{queue}/partition/{partition}",
    "POST /api/v1/push",
    "POST /api/v1/push/columns",
    "POST /api/v1/session",
    "POST /api/v1/transaction",
}

#: An answer that never ends (tests of events have it).
ENDLESS = "/api/v1/events"

#: Answers 200 and tells of each ack what became of it, also of a malformed one.
JUDGED_ONE_BY_ONE = {
    "POST /api/v1/ack/batch",
    "POST /api/v1/pop",
    "POST /api/v1/pop/queue/{queue}",
    "POST /api/v1/pop/queue/{queue}/partition/{partition}",
}

TAKEN = ["2xx", "401", "403", "404", "409", "429"]
REFUSED = ["400", "401", "403", "404", "405", "409", "413", "415", "429"]


def described(server: ServerProcess) -> dict[str, Any]:
    """The server's own description, but for what would take too long."""
    document: dict[str, Any] = server.get("/openapi.json").json
    del document["paths"][ENDLESS]
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["parameters"] = [
                parameter
                for parameter in operation["parameters"]
                if parameter["name"] not in NOT_GENERATED
            ]
    _shorten(document["components"]["schemas"])
    return document


def _shorten(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("maxItems", 0) > MOST_ITEMS:
            del schema["maxItems"]
        for part in schema.values():
            _shorten(part)
    elif isinstance(schema, list):
        for part in schema:
            _shorten(part)


def configuration(server: ServerProcess) -> SchemathesisConfig:
    return SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "base-url": server.url,
            "request-timeout": 30.0,
            "continue-on-failure": True,
            "generation": {"deterministic": True, "max-examples": 3, "no-shrink": True},
            "phases": {"examples": {"enabled": False}, "stateful": {"enabled": False}},
            "checks": {
                "positive_data_acceptance": {"expected-statuses": TAKEN},
                "negative_data_rejection": {"expected-statuses": REFUSED},
            },
            "operations": [
                {
                    "include-name": sorted(JUDGED_AS_A_WHOLE),
                    "checks": {"positive_data_acceptance": {"expected-statuses": [*TAKEN, "400"]}},
                },
                {
                    "include-name": sorted(JUDGED_ONE_BY_ONE),
                    "checks": {"negative_data_rejection": {"expected-statuses": [*REFUSED, "200"]}},
                },
            ],
        }
    )


def test_every_operation_does_what_its_description_says(start_server: StartServer) -> None:
    server = start_server()
    schema = schemathesis.openapi.from_dict(described(server), config=configuration(server))
    failures: dict[str, str] = {}
    statuses: dict[str, set[int]] = defaultdict(set)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished) and event.label is not None:
            for interaction in event.recorder.interactions.values():
                if interaction.response is not None:
                    statuses[event.label].add(interaction.response.status_code)
            _note_failures(event, failures)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            failures[f"{type(event).__name__} {len(failures)}"] = str(event)
    assert not failures, "\n\n".join(failures.values())
    described_routes = [route for route in ROUTES if route.path != ENDLESS]
    missing = {f"{route.method} {route.path}" for route in described_routes} - statuses.keys()
    assert not missing, "operations that were never called"
    assert all(max(seen) < 500 for seen in statuses.values())
    refusable = {label for label, seen in statuses.items() if min(seen) < 300}
    assert len(refusable) > len(ROUTES) / 2, "hardly anything was ever good"
    assert not [line for line in server.log if line.get("level") == "error"], server.log[-5:]


def _note_failures(event: events.ScenarioFinished, failures: dict[str, str]) -> None:
    """The first one of each kind and operation."""
    for checks in event.recorder.checks.values():
        for check in checks:
            if check.failure_info is not None:
                told = check.failure_info
                failures.setdefault(
                    f"{event.label} {check.name}",
                    f"{event.label}: {check.name}: {told.failure}\n{told.code_sample[:1000]}",
                )
