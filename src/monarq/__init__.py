"""Monarq: one broker for messages and jobs, on SQLite or PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient
    from monarq.client.client import Client
    from monarq.client.received import Batch, Received
    from monarq.client.tasks import Tasks
    from monarq.errors import MonarqError

    __version__: str

#: Where each public name is; imported when it is first asked for.
_PLACES = {
    "AsyncClient": "monarq.client.async_client",
    "Batch": "monarq.client.received",
    "Client": "monarq.client.client",
    "MonarqError": "monarq.errors",
    "Received": "monarq.client.received",
    "Tasks": "monarq.client.tasks",
}

__all__ = [
    "AsyncClient",
    "Batch",
    "Client",
    "MonarqError",
    "Received",
    "Tasks",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("monarq")
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'monarq' has no attribute {name!r}")
