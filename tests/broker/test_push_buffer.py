"""The push buffer: what it keeps, in which order, within which bounds."""

# ruff: noqa: ASYNC240 (a test may wait for its files)

import asyncio
import os
import stat
import threading
import tracemalloc
from pathlib import Path

import pytest

from monarq.broker.push_buffer import PushBuffer
from monarq.clock import ManualClock
from monarq.crypto import Cipher
from monarq.errors import BufferWriteError, InvalidRequestError, OverloadedError
from monarq.model import Push, PushItem
from tests.broker.buffering import buffer_files, drain, fill, push_of, text_of, texts

EVERYTHING = PushItem(
    queue="ωork/queue",
    payload=b'{"a": [1, 2.50, null]}',
    partition="Ünïcode",
    transaction_id="t-1",
    trace_id="trace",
    namespace="space",
    task="task",
    headers=b'{"h":"1"}',
    priority=7,
    run_at=1_700_000_000_123_456,
    max_attempts=4,
    backoff_base=1.5,
)


async def outcome(buffer: PushBuffer, text: str) -> str:
    try:
        await fill(buffer, text)
    except BufferWriteError as error:
        return "refused" if "buffer_max_bytes" in str(error) else str(error)
    return "kept"


async def test_a_push_comes_back_exactly_as_it_went_in(tmp_path: Path) -> None:
    clock = ManualClock()
    buffer = await PushBuffer.open(tmp_path, clock=clock)
    pushes = [Push([EVERYTHING, PushItem("q", b"1")], "producer"), Push([PushItem("r", b"2")])]
    await buffer.append("the mark", pushes, attempted=True)
    [entry] = await drain(buffer)
    assert entry.pushes == pushes
    assert (entry.mark, entry.at) == ("the mark", clock.now())
    assert entry.attempted
    await buffer.close()


async def test_records_come_back_in_the_order_in_which_they_were_appended(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path, file_bytes=500)
    expected = [str(number) for number in range(100)]
    await asyncio.gather(*(buffer.append(f"m{text}", [push_of(text)]) for text in expected))
    assert texts(await drain(buffer)) == expected
    await buffer.close()


async def test_nothing_is_answered_before_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte that was answered must have been there at an fsync of its file."""
    synced: dict[int, int] = {}
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        real(fd)
        synced[os.fstat(fd).st_ino] = os.fstat(fd).st_size

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    buffer = await PushBuffer.open(tmp_path, file_bytes=300)
    for number in range(10):
        await fill(buffer, str(number))
        for path in buffer_files(tmp_path):
            assert synced[path.stat().st_ino] == path.stat().st_size > 0
    await buffer.close()


async def test_concurrent_appends_share_an_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        nonlocal calls
        calls += 1
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    buffer = await PushBuffer.open(tmp_path)
    await asyncio.gather(*(buffer.append(f"m{n}", [push_of(str(n))]) for n in range(1000)))
    assert calls < 10
    assert len(await drain(buffer)) == 1000
    await buffer.close()


async def test_the_loop_goes_on_while_the_disk_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk waits for the loop here, so a loop that waited for the disk would never end."""
    may_sync = threading.Event()
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        assert may_sync.wait(20)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    buffer = await PushBuffer.open(tmp_path)
    append = asyncio.create_task(buffer.append("m", [push_of("1")]))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not append.done()
    assert not buffer.is_empty
    may_sync.set()
    await append
    await buffer.close()


async def test_files_are_rotated_and_removed_when_they_are_replayed(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path, file_bytes=1000)
    await fill(buffer, *(str(number) for number in range(100)))
    count = len(buffer_files(tmp_path))
    assert count > 5
    assert all(path.stat().st_size < 1200 for path in buffer_files(tmp_path))
    assert (buffer.state.files, buffer.state.records) == (count, 100)
    records = await buffer.peek()
    while len(buffer_files(tmp_path)) == count:
        await buffer.done(records)
        records = await buffer.peek()
    assert len(buffer_files(tmp_path)) == count - 1
    await drain(buffer)
    assert buffer_files(tmp_path) == []
    assert buffer.state.bytes == buffer.state.files == buffer.state.records == 0
    await buffer.close()


async def test_the_size_of_all_files_is_bounded_and_room_is_made_by_replaying(
    tmp_path: Path,
) -> None:
    buffer = await PushBuffer.open(tmp_path, file_bytes=1000, max_bytes=5000)
    answers = [await outcome(buffer, str(number)) for number in range(100)]
    kept = answers.index("refused")
    assert 0 < kept < 100
    assert "kept" not in answers[kept:]
    assert sum(path.stat().st_size for path in buffer_files(tmp_path)) <= 5000
    await buffer.adopt()
    assert buffer.state.failing is not None
    assert texts(await drain(buffer)) == [str(number) for number in range(kept)]
    await buffer.adopt()
    assert buffer.state.failing is None
    await fill(buffer, "again")
    assert buffer.state.failing is None
    await buffer.close()


async def test_the_bound_holds_for_all_processes_of_a_directory_together(tmp_path: Path) -> None:
    first = await PushBuffer.open(tmp_path, max_bytes=5000)
    second = await PushBuffer.open(tmp_path, max_bytes=5000)
    await first.append("m", [Push([PushItem("q", b'"%s"' % (b"x" * 4000))])])
    third = await PushBuffer.open(tmp_path, max_bytes=5000)
    with pytest.raises(BufferWriteError):
        await third.append("m", [Push([PushItem("q", b'"%s"' % (b"x" * 4000))])])
    for buffer in (first, second, third):
        await buffer.close()


async def test_a_push_too_large_for_the_rest_does_not_keep_smaller_ones_out(
    tmp_path: Path,
) -> None:
    buffer = await PushBuffer.open(tmp_path, max_bytes=5000)
    large = Push([PushItem("q", b'"%s"' % (b"x" * 6000))])
    answers = await asyncio.gather(
        buffer.append("1", [push_of("before")]),
        buffer.append("2", [large]),
        buffer.append("3", [push_of("after")]),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [type(None), BufferWriteError, type(None)]
    assert texts(await drain(buffer)) == ["before", "after"]
    await buffer.close()


async def test_a_record_larger_than_a_file_is_kept(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path, file_bytes=1000)
    payload = b'"%s"' % (b"x" * 3_000_000)
    await fill(buffer, "before")
    await buffer.append("m", [Push([PushItem("q", payload)])])
    await fill(buffer, "after")
    entries = await drain(buffer)
    assert entries[1].pushes[0].items[0].payload == payload
    assert [text_of(entries[0].pushes[0]), text_of(entries[2].pushes[0])] == ["before", "after"]
    await buffer.close()


async def test_appends_that_wait_for_the_disk_are_bounded(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path, waiting_max_bytes=10_000)
    answers = await asyncio.gather(
        *(buffer.append(f"m{number}", [push_of(str(number))]) for number in range(200)),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if answer is not None]
    assert refused
    assert all(isinstance(answer, OverloadedError) for answer in refused)
    assert len(await drain(buffer)) == 200 - len(refused)
    await buffer.close()


async def test_a_caller_that_goes_away_spoils_nobody_elses_append(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path)
    tasks = [
        asyncio.create_task(buffer.append(f"m{number}", [push_of(str(number))]))
        for number in range(10)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[1::2] == [None] * 5
    assert set(texts(await drain(buffer))) >= {str(number) for number in range(1, 10, 2)}
    await buffer.close()


async def test_what_is_left_at_a_stop_is_there_at_the_next_start_in_front(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path)
    await fill(buffer, "1", "2", "3")
    [first, *_] = await buffer.peek()
    await buffer.done([first])
    await buffer.close()
    buffer = await PushBuffer.open(tmp_path)
    assert not buffer.is_empty
    await fill(buffer, "4")
    assert texts(await drain(buffer)) == ["2", "3", "4"]
    await buffer.close()
    assert list(tmp_path.glob("[0-9]*")) == []


async def test_a_position_is_never_taken_for_that_of_a_later_file(tmp_path: Path) -> None:
    """The same number is given again once all files are gone, and a crash leaves the position."""
    buffer = await PushBuffer.open(tmp_path)
    await fill(buffer, "1", "2")
    [first, second] = await buffer.peek()
    await buffer.done([first])
    [subdirectory] = tmp_path.glob("[0-9]*")
    saved = (subdirectory / "position").read_bytes()
    await buffer.done([second])
    await buffer.close()
    subdirectory.mkdir()
    (subdirectory / "position").write_bytes(saved)
    buffer = await PushBuffer.open(tmp_path)
    await fill(buffer, "3", "4")
    await buffer.close()
    buffer = await PushBuffer.open(tmp_path)
    assert texts(await drain(buffer)) == ["3", "4"]
    await buffer.close()


async def test_a_lost_or_senseless_position_only_repeats_records(tmp_path: Path) -> None:
    for content in (None, b"", b"{", b'{"file":1,"offset":3}', b'{"file":"x","offset":99}'):
        buffer = await PushBuffer.open(tmp_path)
        await fill(buffer, "1", "2")
        [first, _] = await buffer.peek()
        await buffer.done([first])
        await buffer.close()
        [position] = tmp_path.glob("[0-9]*/position")
        position.unlink() if content is None else position.write_bytes(content)
        buffer = await PushBuffer.open(tmp_path)
        assert texts(await drain(buffer)) == ["1", "2"]
        await buffer.close()


async def test_two_on_one_directory_keep_to_themselves(tmp_path: Path) -> None:
    first = await PushBuffer.open(tmp_path)
    second = await PushBuffer.open(tmp_path)
    await fill(first, "1", "2")
    await fill(second, "3")
    await first.adopt()
    await second.adopt()
    assert texts(await drain(first)) == ["1", "2"]
    assert texts(await drain(second)) == ["3"]
    await first.close()
    await second.close()


async def test_what_another_left_behind_is_adopted_in_order_and_once(tmp_path: Path) -> None:
    first = await PushBuffer.open(tmp_path)
    second = await PushBuffer.open(tmp_path)
    third = await PushBuffer.open(tmp_path)
    await fill(second, "1", "2", "3")
    await third.adopt()
    assert third.is_empty
    await second.close()
    await fill(first, "4")
    await first.adopt()
    await third.adopt()
    assert third.is_empty
    assert texts(await drain(first)) == ["1", "2", "3", "4"]
    assert len(list(tmp_path.glob("[0-9]*"))) == 2
    await first.close()
    await third.close()


async def test_what_is_for_another_store_is_reported_and_left_alone(tmp_path: Path) -> None:
    mine = await PushBuffer.open(tmp_path, store="postgresql://a/db")
    await fill(mine, "1")
    await mine.close()
    other = await PushBuffer.open(tmp_path, store="postgresql://b/db")
    assert other.is_empty
    assert other.state.others == ["0001"]
    await other.close()
    mine = await PushBuffer.open(tmp_path, store="postgresql://a/db")
    assert texts(await drain(mine)) == ["1"]
    await mine.close()


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    directory = tmp_path / "buffer"
    buffer = await PushBuffer.open(directory)
    await fill(buffer, "1")
    await buffer.set_aside([((await buffer.peek())[0], 0, InvalidRequestError("bad"))])
    for path in (directory, *directory.rglob("*")):
        allowed = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == allowed, path
    await buffer.close()


async def test_with_keys_no_payload_lies_there_in_plain_text(tmp_path: Path) -> None:
    cipher = Cipher([b"k" * 32])
    buffer = await PushBuffer.open(tmp_path, cipher=cipher)
    await buffer.append("m1", [push_of("a-secret")])
    await buffer.append("m2", [push_of("another-secret")])
    await buffer.set_aside([((await buffer.peek())[0], 0, InvalidRequestError("bad"))])
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret" not in content
    await buffer.close()
    buffer = await PushBuffer.open(tmp_path, cipher=Cipher([b"new" + b"k" * 29, b"k" * 32]))
    assert texts(await drain(buffer)) == ["a-secret", "another-secret"]
    await buffer.close()


async def test_memory_does_not_grow_with_what_is_buffered(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path, file_bytes=4 << 20)
    payload = b'"%s"' % (b"x" * 500_000)
    push = [Push([PushItem("q", payload)])]
    await buffer.append("m", push)
    tracemalloc.start()
    try:
        for number in range(60):
            await buffer.append(f"m{number}", push)
        while records := await buffer.peek(max_bytes=1 << 20):
            await buffer.done(records)
            del records
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # of 30 MB that went through
    await buffer.close()


async def test_a_closed_buffer_takes_nothing(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path)
    await buffer.close()
    await buffer.close()
    with pytest.raises(BufferWriteError):
        await fill(buffer, "1")
