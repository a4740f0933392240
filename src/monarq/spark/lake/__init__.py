"""The lake: archived tables as Parquet files, and the commits that say which of them count.

`Lake` writes and mends, `read` gives Spark what is committed, `committed_files` anyone else.
Nothing here needs a broker.
"""

from monarq.spark.lake.lake import Lake
from monarq.spark.lake.reading import committed_files, read

__all__ = ["Lake", "committed_files", "read"]
