"""What a task reads of what was planned, when things changed in between. No Spark runs here."""

import asyncio
import base64
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from monarq.errors import DataLossError, EncryptionKeyError
from monarq.model import Push
from monarq.spark.access import open_access
from monarq.spark.batch import MessagesReader
from monarq.spark.options import read_options
from monarq.spark.schemas import shape_of, spark_schema
from monarq.spark.stream import MessageStream
from monarq.store import open_store
from monarq.store.contract import Store
from tests.spark.seeding import fill, in_store, make_queue, numbered


@pytest.fixture
def url(store_url: str) -> Iterator[str]:
    make_queue(store_url, "orders")
    yield store_url
    open_access(store_url).close()


def _reader(url: str, **options: Any) -> MessagesReader:
    given = read_options({"url": url, "queue": "orders"} | options)
    return MessagesReader(given, shape_of("messages", spark_schema("messages")))


def _seqs(reader: MessagesReader) -> list[int]:
    # As Spark does: planned here, read elsewhere.
    splits = pickle.loads(pickle.dumps(list(reader.partitions())))
    there = pickle.loads(pickle.dumps(reader))
    return [
        seq
        for split in splits
        for batch in there.read(split)
        for seq in batch.column("seq").to_pylist()
    ]


def _clear(url: str) -> None:
    async def clear(store: Store) -> None:
        await store.clear_queue("orders")

    in_store(url, clear)


def test_what_goes_between_the_plan_and_the_read_fails_the_read(url: str) -> None:
    fill(url, numbered("orders", 10))
    reader, lenient = _reader(url), _reader(url, failOnDataLoss="false")
    [split] = reader.partitions()
    _clear(url)
    fill(url, numbered("orders", 3))
    with pytest.raises(DataLossError, match="seq 1 to 10 were wanted"):
        list(reader.read(split))
    assert list(lenient.read(split)) == []
    assert _seqs(reader) == [11, 12, 13]


def test_a_message_that_somebody_deleted_is_no_loss(url: str) -> None:
    fill(url, numbered("orders", 10))

    async def delete(store: Store) -> None:
        [partition] = await store.export_plan("orders")
        for seq in (1, 5):
            await store.delete_message(partition.partition_id, f"{partition.partition_id}-{seq}")

    in_store(url, delete)
    assert _seqs(_reader(url)) == [2, 3, 4, 6, 7, 8, 9, 10]


def test_messages_pushed_after_the_plan_are_not_read(url: str) -> None:
    fill(url, numbered("orders", 10))
    reader = _reader(url)
    splits = reader.partitions()
    fill(url, numbered("orders", 10))
    assert sum(batch.num_rows for split in splits for batch in reader.read(split)) == 10


def test_a_stream_read_again_from_its_offsets_gives_the_same_rows(url: str) -> None:
    options = read_options({"url": url, "queue": "orders"}, stream=True)
    shape = shape_of("messages", spark_schema("messages"))
    fill(url, numbered("orders", 20, partitions=3))
    stream = MessageStream(options, shape)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    fill(url, numbered("orders", 20, partitions=5))

    def rows(reader: MessageStream) -> list[Any]:
        splits = reader.partitions(start, end)
        return [
            row for split in splits for batch in reader.read(split) for row in batch.to_pylist()
        ]

    first = rows(stream)
    assert len(first) == 20
    # As after a crash: another process, which has seen nothing but the checkpoint.
    assert rows(MessageStream(options, shape)) == first


def test_encrypted_queues_need_the_key(store_url: str) -> None:
    key = os.urandom(32)

    async def push() -> None:
        async with await open_store(store_url, keys=[key]) as store:
            await store.configure("orders", options={"encryptionEnabled": True})
            await store.push([Push(list(numbered("orders", 3)))])

    asyncio.run(push())
    text = base64.b64encode(key).decode()
    reader = _reader(store_url, encryptionKey=text)
    assert _seqs(reader) == [1, 2, 3]
    assert text not in repr(reader.__dict__)
    with pytest.raises(EncryptionKeyError):
        _seqs(_reader(store_url))
    for given in (text, None):
        open_access(store_url, encryption_key=given).close()
