"""The store itself: the contract's calls, put together from their parts."""

from __future__ import annotations

from monarq.operations import STORE_OPERATIONS
from monarq.operations.handlers import check
from monarq.store import queries
from monarq.store.sqlite import (
    dead_letters,
    group_lists,
    groups,
    item_calls,
    joining,
    messages,
    outputs,
    queues,
    traces,
)
from monarq.store.sqlite.export_calls import ExportCalls
from monarq.store.sqlite.figures import FigureCalls
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.inspect_calls import InspectCalls
from monarq.store.sqlite.queue_calls import QueueCalls
from monarq.store.sqlite.watching import WatchingCalls
from monarq.store.validation.calls import checks_arguments


@checks_arguments
class SqliteStore(QueueCalls, InspectCalls, ExportCalls, FigureCalls, WatchingCalls):
    """In one file that several processes may open at once, or in memory.

    Each call is one transaction, run by one thread; nothing blocks the event loop."""


#: Modules whose import registers handlers.
HANDLER_MODULES = (
    dead_letters,
    group_lists,
    groups,
    item_calls,
    joining,
    messages,
    outputs,
    queues,
    traces,
)

check("the SQLite store", queries.handles, handles, wanted=STORE_OPERATIONS)
