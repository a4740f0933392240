"""What is read from encrypted queues is in the clear: whoever copies it has to say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from monarq.errors import InvalidRequestError
from monarq.spark.access import QueueInfo
from monarq.spark.options import read_options
from monarq.spark.pipelines.user.definition import Pipeline, source_options
from monarq.spark.ranges import opened


def refuse_encrypted(queues: Iterable[QueueInfo], why: str, what_to_do: str) -> None:
    """Raise `InvalidRequestError` if one of the queues is encrypted."""
    names = sorted(queue.name for queue in queues if queue.encrypted)
    if names:
        listed = ", ".join(map(repr, names[:5])) + (" and others" if len(names) > 5 else "")
        raise InvalidRequestError(
            f"encrypted: {listed}; {why}: {what_to_do}, or name the other queues only"
        )


def refuse_encrypted_sources(pipeline: Pipeline, place: Mapping[str, str]) -> None:
    """The same for the queues that a pipeline reads from, unless their source says `decrypt`."""
    for name, source in pipeline.sources.items():
        if source.queue is None or source.decrypt:
            continue
        queues = opened(read_options(source_options(source, place))).queues()
        refuse_encrypted(
            [queue for queue in queues if fnmatchcase(queue.name, source.queue)]
            if any(sign in source.queue for sign in "*?[")
            else [queue for queue in queues if queue.name == source.queue],
            "a pipeline reads and writes in the clear",
            f"give sources.{name} decrypt = true",
        )
