"""What tells one store from others, for those who archive it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monarq.client.client import Client
from monarq.errors import NotFoundError
from monarq.spark.pipelines.registry import RunRegistry


@pytest.fixture
def mq(tmp_path: Path) -> Iterator[Client]:
    with Client(f"sqlite:///{tmp_path}/mq.db") as client:
        yield client


class LateRecords:
    """The records of a store, where others do something between two calls."""

    def __init__(self, records: Any, meanwhile: Callable[[], None]) -> None:
        self._records = records
        self._meanwhile = meanwhile

    def get_record(self, kind: str, key: str) -> Any:
        try:
            return self._records.get_record(kind, key)
        except NotFoundError:
            self._meanwhile()
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)


def test_two_first_archives_at_once_agree_on_the_id_of_their_store(mq: Client) -> None:
    others: list[str] = []
    other = RunRegistry(mq.admin)
    late = RunRegistry(LateRecords(mq.admin, lambda: others.append(other.store_id())))
    assert [late.store_id()] == others
    assert other.store_id() == late.store_id() == others[0]
