"""A lean HTTP load generator: what it costs itself must not hide what it measures."""

from monarq.loadgen.connection import ConnectionLostError, LoadConnection, compose_request, connect
from monarq.loadgen.driving import Report, closed_loop, open_loop
from monarq.loadgen.findings import Findings, Snapshot
from monarq.loadgen.histogram import Histogram
from monarq.loadgen.plan import Mode, Plan
from monarq.loadgen.running import LoadError, run_load

__all__ = [
    "ConnectionLostError",
    "Findings",
    "Histogram",
    "LoadConnection",
    "LoadError",
    "Mode",
    "Plan",
    "Report",
    "Snapshot",
    "closed_loop",
    "compose_request",
    "connect",
    "open_loop",
    "run_load",
]
