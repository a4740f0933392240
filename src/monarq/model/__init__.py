"""The nouns: queues, messages, items, leases, and the requests and answers about them.

Plain typed structs that every layer may import; nothing here does anything. Times are
microseconds since the epoch, UTC (see `clock`). JSON names are camelCase. Those that come by the
thousand and hold nothing but plain values are no concern of the garbage collector (`gc=False`).
"""

from monarq.model.acks import Ack, Acked, AckStatus, Renew, Renewed, Transaction, TransactionDone
from monarq.model.dead_letters import DeadLetter, DeadLetterError, DeadLetterFilter
from monarq.model.flows import GroupFlow, Latency, MetricPoint, QueueFlow, Standing
from monarq.model.groups import Cursor, Group, SeekPreview, SeekTo
from monarq.model.items import (
    Attempt,
    AttemptOutcome,
    Item,
    ItemDetail,
    ItemState,
    LoggedAttempt,
    OutputPart,
)
from monarq.model.limits import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    ERROR_KEY_LENGTH,
    MAX_BATCH,
    MAX_NAME_LENGTH,
    MAX_OUTPUT_BYTES,
    MAX_PARTITIONS,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    MAX_RECORD_BYTES,
    MAX_TRACE_NAMES,
    POP_MAX_BYTES,
)
from monarq.model.messages import (
    BusStatus,
    Delivery,
    MessageDetail,
    MessageStatus,
    Segment,
    StoredMessage,
    Trace,
)
from monarq.model.pages import Page
from monarq.model.pops import Message, Pop, Popped, StartFrom
from monarq.model.pushes import Push, PushColumns, Pushed, PushItem, PushStatus
from monarq.model.queue_options import QueueKind, QueueOptions
from monarq.model.queues import (
    ConfiguredQueue,
    PartitionRange,
    PartitionStats,
    Queue,
    QueueCounts,
    QueueInfo,
)
from monarq.model.upkeep import LifecycleReport, Record

__all__ = [
    "DEFAULT_GROUP",
    "DEFAULT_PARTITION",
    "ERROR_KEY_LENGTH",
    "MAX_BATCH",
    "MAX_NAME_LENGTH",
    "MAX_OUTPUT_BYTES",
    "MAX_PARTITIONS",
    "MAX_PAYLOAD_BYTES",
    "MAX_PRIORITY",
    "MAX_RECORD_BYTES",
    "MAX_TRACE_NAMES",
    "POP_MAX_BYTES",
    "Ack",
    "AckStatus",
    "Acked",
    "Attempt",
    "AttemptOutcome",
    "BusStatus",
    "ConfiguredQueue",
    "Cursor",
    "DeadLetter",
    "DeadLetterError",
    "DeadLetterFilter",
    "Delivery",
    "Group",
    "GroupFlow",
    "Item",
    "ItemDetail",
    "ItemState",
    "Latency",
    "LifecycleReport",
    "LoggedAttempt",
    "Message",
    "MessageDetail",
    "MessageStatus",
    "MetricPoint",
    "OutputPart",
    "Page",
    "PartitionRange",
    "PartitionStats",
    "Pop",
    "Popped",
    "Push",
    "PushColumns",
    "PushItem",
    "PushStatus",
    "Pushed",
    "Queue",
    "QueueCounts",
    "QueueFlow",
    "QueueInfo",
    "QueueKind",
    "QueueOptions",
    "Record",
    "Renew",
    "Renewed",
    "SeekPreview",
    "SeekTo",
    "Segment",
    "Standing",
    "StartFrom",
    "StoredMessage",
    "Trace",
    "Transaction",
    "TransactionDone",
]
