"""Where things are in a lake, and how queues become folders. Touches no file.

```
messages/queue=orders/date=2026-11-15/<batch>-<n>.parquet    for every reader; likewise
deliveries/…  dead_letters/…  attempts/…
analysis/<run>/…
_lake.json               what lake this is
_commits/<number>.json   one a commit: the truth of what is in
_files/messages/…        the same files once more (hard links): what Monarq's own readers open, so
                         that a compaction under them takes nothing away
_batches/<batch>         held by whoever writes that batch
```
"""

from __future__ import annotations

import hashlib
from datetime import date

#: What is archived, and the column whose day a row belongs to.
TABLES = {
    "messages": "created_at",
    "deliveries": "ended_at",
    "dead_letters": "failed_at",
    "attempts": "ended_at",
}

LAKE_FILE = "_lake.json"
COMMITS = "_commits"
FILES = "_files"
BATCHES = "_batches"
LOCK_FILE = "_lock"
ANALYSIS = "analysis"

#: What Hive, and so Spark, pyarrow and DuckDB, expect to be escaped in the value of a folder.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
#: How Hive writes that there is no value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: A folder's name may have 255 bytes on the usual file systems.
_LONGEST = 240


def folder_value(queue: str) -> str:
    """What stands behind `queue=`. A name too long for a folder is cut, and ends in a hash."""
    escaped = _escaped(queue)
    if not is_cut(queue):
        return escaped
    mark = hashlib.sha256(queue.encode()).hexdigest()[:16]
    start = escaped.encode()[: _LONGEST - 20].decode(errors="ignore")
    # Half an escape sequence would be read as something else.
    half = start.rfind("%", len(start) - 2)
    return f"{start if half < 0 else start[:half]}~{mark}"


def is_cut(queue: str) -> bool:
    """Whether the folder of this queue does not tell its name."""
    return queue == _NO_VALUE or len(_escaped(queue).encode()) > _LONGEST


def _escaped(queue: str) -> str:
    return "".join(f"%{ord(one):02X}" if one in _ESCAPED else one for one in queue)


def folder(table: str, queue: str, day: date) -> str:
    """Relative to the lake, or to `_files`."""
    return f"{table}/queue={folder_value(queue)}/date={day.isoformat()}"


def table_of(path: str) -> str:
    """The table that a file's path is of."""
    return path.partition("/")[0]
