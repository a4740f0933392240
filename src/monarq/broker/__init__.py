"""The broker: one loop per process that stands between callers and the store."""
