"""The calls beside the hot path, each declared once. See `operation.py`."""

from __future__ import annotations

from typing import Any

from monarq.operations.dead_letters import ListDeadLetters, PurgeDeadLetters, Redrive
from monarq.operations.groups import (
    DeleteGroup,
    GetGroup,
    ListCursors,
    ListGroups,
    ListLaggingGroups,
    Seek,
    Subscribe,
)
from monarq.operations.items import (
    AppendOutput,
    CancelItem,
    GetItem,
    ListItems,
    ReadOutput,
    RetryItem,
)
from monarq.operations.messages import DeleteMessage, GetMessage, ListMessages
from monarq.operations.operation import Operation, Paged
from monarq.operations.partitions import ListPartitions
from monarq.operations.queues import (
    ClearQueue,
    Configure,
    DeleteQueue,
    GetQueue,
    ListQueues,
    PauseQueue,
    ResumeQueue,
)
from monarq.operations.records import DeleteRecord, GetRecord, ListRecords, PutRecord
from monarq.operations.traces import AddTrace, ListTraceNames, ListTraces

OPERATIONS: tuple[type[Operation[Any]], ...] = (
    Configure,
    ListQueues,
    GetQueue,
    DeleteQueue,
    ClearQueue,
    PauseQueue,
    ResumeQueue,
    ListPartitions,
    ListMessages,
    GetMessage,
    DeleteMessage,
    ListDeadLetters,
    Redrive,
    PurgeDeadLetters,
    ListGroups,
    ListLaggingGroups,
    GetGroup,
    ListCursors,
    DeleteGroup,
    Seek,
    Subscribe,
    ListItems,
    GetItem,
    CancelItem,
    RetryItem,
    AppendOutput,
    ReadOutput,
    AddTrace,
    ListTraceNames,
    ListTraces,
    ListRecords,
    GetRecord,
    PutRecord,
    DeleteRecord,
)
"""All operations, in the order of the OpenAPI document."""

STORE_OPERATIONS = tuple(each for each in OPERATIONS if not each.composed)
BROKER_OPERATIONS = tuple(each for each in OPERATIONS if each.composed)

__all__ = ["BROKER_OPERATIONS", "OPERATIONS", "STORE_OPERATIONS", "Operation", "Paged"]
