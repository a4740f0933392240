"""The bounds that requests are checked against, and the names that stand where none is given."""

DEFAULT_PARTITION = "Default"
DEFAULT_GROUP = "__QUEUE_MODE__"
MAX_NAME_LENGTH = 255
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
MAX_BATCH = 10_000
MAX_PARTITIONS = 1_000
"""That one pop may take from."""
POP_MAX_BYTES = 16 * 1024 * 1024
"""Of payloads in the answer to one pop, unless somebody says otherwise."""
MAX_PRIORITY = 1_000
MAX_RECORD_BYTES = 1024 * 1024
MAX_TRACE_NAMES = 100
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
ERROR_KEY_LENGTH = 200
"""Of an error's first line: what dead letters are grouped by."""
