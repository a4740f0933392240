"""Where Spark looks for the data source `monarq`: a package named `pyspark_` and the format."""

from monarq.spark.source import MonarqSource as DefaultSource

__all__ = ["DefaultSource"]
