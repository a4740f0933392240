"""The pipelines: from queues to a lake, from the lake to an analysis, and back into queues."""
