"""Where Spark looks for the data source `monarq`: a package named `pyspark_` and the format."""
