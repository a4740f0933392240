"""Queues as tables and streams of Spark, and the pipelines built on them.

Public is `session`, for those who have no Spark session yet. The data source itself needs no
import: `spark.read.format("monarq")` finds it. Nothing here is imported by the rest of Monarq
unless a pipeline is asked for.
"""

from __future__ import annotations

from monarq.spark.session import session

__all__ = ["session"]
