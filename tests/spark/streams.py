"""Starts streams in tests, also on a machine that is busy.

Spark gives the Python process of a streaming source ten seconds to start, whatever the machine
does meanwhile, and fails the query otherwise. That is no fault of what is tested.
"""

import time

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

_TRIES = 6
_SECONDS = 300.0


def begin(writer: DataStreamWriter) -> StreamingQuery:
    """The query, started and past its initialisation; it may have failed for its own reasons."""
    for _ in range(_TRIES):
        query = writer.start()
        deadline = time.monotonic() + _SECONDS
        while query.isActive and query.status["message"].startswith("Initializing"):
            assert time.monotonic() < deadline, "it does not begin"
            time.sleep(0.02)
        if "failed to connect back" not in str(query.exception()):
            return query
    return query
