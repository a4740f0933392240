"""Partitions of queues: listing them."""

from __future__ import annotations

from monarq.model import PartitionStats
from monarq.operations.operation import Name, Paged, Route
from monarq.wire.paging import PageAnswer


class PartitionsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    partitions: list[PartitionStats]


class ListPartitions(Paged[PartitionStats], frozen=True, kw_only=True):
    """List the partitions of a queue by id, with what is kept of each."""

    routes = (
        Route(
            "GET",
            "/api/v1/resources/partitions",
            "List the partitions of a queue",
            answer=PartitionsAnswer,
            result="partitions",
            errors=(404,),
        ),
    )

    queue: Name
