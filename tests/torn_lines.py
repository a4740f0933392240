"""Reads what a process wrote that may have been killed: its last line may be torn."""

from collections.abc import Iterable, Iterator


def whole_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines without their ends, but for a last one that has none: it was not finished."""
    for line in lines:
        if line.endswith(b"\n"):
            yield line[:-1]
