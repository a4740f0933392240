"""A lean HTTP load generator: what it costs itself must not hide what it measures."""

from monarq.loadgen.connection import ConnectionLostError, LoadConnection, compose_request, connect
from monarq.loadgen.driving import Report, closed_loop, open_loop
from monarq.loadgen.histogram import Histogram

__all__ = [
    "ConnectionLostError",
    "Histogram",
    "LoadConnection",
    "Report",
    "closed_loop",
    "compose_request",
    "connect",
    "open_loop",
]
