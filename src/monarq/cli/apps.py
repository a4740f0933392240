"""The app whose tasks a worker runs: finding it, and working where it does."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from monarq.cli.calling import Caller
from monarq.client.tasks import Tasks
from monarq.errors import InvalidRequestError


class _CallerOfApp(Caller):
    """Reaches what the app's client reaches, with what that was given for it."""

    def __init__(self, caller: Caller, addresses: list[str], options: dict[str, Any]) -> None:
        by_http = addresses[0].startswith(("http://", "https://"))
        store, urls = (None, addresses) if by_http else (addresses[0], None)
        super().__init__(store, urls, caller.token or options["token"], caller.as_json)
        self._options = options | {"token": self.token if by_http else None}

    @property
    def options(self) -> dict[str, Any]:
        return self._options


def where_jobs_go(caller: Caller, client_of_app: Any) -> Caller:
    """A caller that reaches what the app's client enqueues to, unless somebody says otherwise."""
    address = getattr(client_of_app, "address", None)
    if address is None or caller.is_told_where:
        return caller
    if isinstance(address, str) and "://" not in address:
        raise InvalidRequestError(
            f"the app keeps its jobs at {address!r}, in its own process: workers cannot reach them"
        )
    addresses = [address] if isinstance(address, str) else list(address)
    return _CallerOfApp(caller, addresses, client_of_app.options)


def load(app_name: str | None) -> tuple[Any, Tasks | None]:
    """The client at `module:name`, and its tasks."""
    if app_name is None:
        return None, None
    module_name, colon, name = app_name.partition(":")
    if not colon:
        raise InvalidRequestError(f"--app must be module:client, not {app_name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise InvalidRequestError(f"--app {app_name}: {error}") from error
    tasks = found if isinstance(found, Tasks) else getattr(found, "tasks", None)
    if not isinstance(tasks, Tasks):
        raise InvalidRequestError(f"--app {app_name}: there is no client with tasks")
    return found, tasks
