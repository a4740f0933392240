"""The Python client: the same calls, whether the broker runs in this process or behind HTTP."""
