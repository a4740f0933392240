"""The push buffer under kill -9, on a full disk, and where it cannot write."""

import contextlib
import errno
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from monarq.broker.push_buffer import PushBuffer
from monarq.errors import BufferWriteError
from tests.broker.buffering import buffer_files, drain, fill, texts

PROJECT = Path(__file__).parents[2]


@contextlib.contextmanager
def appending(
    directory: Path, senders: int = 4, prepare: Callable[[], None] | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.broker.appending_process", str(directory), str(senders)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_lines(stream: IO[str] | None, count: int) -> list[str]:
    assert stream is not None
    return [line.rstrip("\n") for line in itertools.islice(stream, count)]


def in_order(found: list[str]) -> bool:
    """Whether each sender of each process appended 1, 2, 3 …"""
    last: dict[str, int] = defaultdict(int)
    for text in found:
        sender, _, number = text.rpartition("-")
        if int(number) != last[sender] + 1:
            return False
        last[sender] = int(number)
    return True


@pytest.mark.slow
async def test_what_was_answered_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(5)
    kept: set[str] = set()
    for _ in range(8):
        with appending(tmp_path, senders=chance.choice([1, 4, 32])) as process:
            lines = read_lines(process.stdout, chance.randrange(1, 400))
            process.send_signal(signal.SIGKILL)
            assert process.stdout is not None
            rest = process.stdout.read()
            whole = rest[: rest.rfind("\n") + 1]
            kept |= {line.split()[1] for line in (*lines, *whole.splitlines())}
    buffer = await PushBuffer.open(tmp_path)
    found = texts(await drain(buffer))
    assert kept - set(found) == set()
    assert len(found) == len(set(found))
    assert in_order(found)
    # Torn ends are no damage: nothing had to be set aside.
    assert buffer.state.set_aside == []
    await buffer.close()


@pytest.mark.slow
async def test_a_living_process_adopts_what_a_killed_one_left(tmp_path: Path) -> None:
    buffer = await PushBuffer.open(tmp_path)
    with appending(tmp_path) as process:
        lines = read_lines(process.stdout, 50)
        await buffer.adopt()
        assert buffer.is_empty  # it lives, so its subdirectory is its own
        process.kill()
        process.wait()
        await buffer.adopt()
    found = texts(await drain(buffer))
    assert {line.split()[1] for line in lines} <= set(found)
    assert in_order(found)
    await buffer.close()


def small_files() -> None:
    """Writes behind 3,000 bytes of a file fail half-way, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))


@pytest.mark.slow
async def test_a_write_that_fails_half_way_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    with appending(tmp_path, senders=8, prepare=small_files) as process:
        lines = read_lines(process.stdout, 2_000)
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        # Not `communicate`: it knows nothing of what was read ahead.
        assert process.stdout is not None
        rest = process.stdout.read()
        assert process.wait(30) == 0
    answers = [line.split(maxsplit=2) for line in (*lines, *rest.splitlines())]
    kept = [answer[1] for answer in answers if answer[0] == "kept"]
    refused = [answer for answer in answers if answer[0] == "refused"]
    assert kept
    assert refused
    assert all("File too large" in answer[2] for answer in refused)
    buffer = await PushBuffer.open(tmp_path)
    found = texts(await drain(buffer))
    assert sorted(found) == sorted(kept)
    assert buffer.state.set_aside == []
    await buffer.close()


class Disk:
    """A disk of 256 KiB: a file system of its own where we may mount one, else a directory in
    which writes behind that many bytes fail half-way."""

    SIZE = 256 << 10

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    @property
    def used(self) -> int:
        return sum(path.stat().st_size for path in self.place.rglob("*") if path.is_file())

    def fill(self, free: int = 0) -> None:
        usage = shutil.disk_usage(self.place)
        is_mounted = usage.total == self.SIZE
        rest = usage.free if is_mounted else self.SIZE - self.used
        self._ballast.write_bytes(b"x" * max(0, rest - free))

    def make_room(self) -> None:
        self._ballast.unlink()

    def write(self, fd: int, data: bytes) -> int:
        room = self.SIZE - self.used
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return _write(fd, data[:room])


_write = os.write


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    disk.place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={Disk.SIZE}", "tmpfs", str(disk.place)]
    if os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0:
        yield disk
        subprocess.run(["umount", "--lazy", str(disk.place)], check=True)
    else:
        monkeypatch.setattr(os, "write", disk.write)
        yield disk


async def test_a_full_disk_refuses_clearly_and_goes_on_when_there_is_room(disk: Disk) -> None:
    disk.fill(free=50_000)
    buffer = await PushBuffer.open(disk.place / "buffer")
    kept: list[str] = []
    refusals: list[str] = []
    for number in range(1000):
        try:
            await fill(buffer, str(number))
            kept.append(str(number))
        except BufferWriteError as error:
            refusals.append(str(error))
    assert kept
    assert refusals
    assert all("No space left" in refusal for refusal in refusals)
    assert buffer.state.failing == refusals[-1]
    disk.make_room()
    await fill(buffer, "again")
    assert buffer.state.failing is None
    assert texts(await drain(buffer)) == [*kept, "again"]
    assert buffer.state.set_aside == []
    await buffer.close()


async def test_room_on_a_disk_that_was_full_is_noticed_though_nothing_is_pushed(disk: Disk) -> None:
    buffer = await PushBuffer.open(disk.place / "buffer")
    await fill(buffer, "kept")
    disk.fill()
    with pytest.raises(BufferWriteError):
        await fill(buffer, "x" * 10_000)
    await buffer.adopt()
    assert buffer.state.failing is not None
    disk.make_room()
    await buffer.adopt()
    assert buffer.state.failing is None
    assert texts(await drain(buffer)) == ["kept"]
    await buffer.close()
    assert list((disk.place / "buffer").rglob("*")) == []


async def test_what_is_buffered_can_be_replayed_from_a_disk_that_is_full(disk: Disk) -> None:
    buffer = await PushBuffer.open(disk.place / "buffer", file_bytes=4_000)
    expected = [str(number) for number in range(100)]
    await fill(buffer, *expected)
    await buffer.close()
    disk.fill()
    buffer = await PushBuffer.open(disk.place / "buffer")
    assert texts(await drain(buffer)) == expected
    await buffer.close()


async def test_a_directory_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BufferWriteError, match="file/buffer"):
        await PushBuffer.open(tmp_path / "file" / "buffer")


async def test_a_disk_that_fails_to_sync_refuses_the_push_and_is_not_trusted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync nobody knows what is on the disk: nothing more goes to that file."""
    buffer = await PushBuffer.open(tmp_path)
    await fill(buffer, "before")
    [file] = buffer_files(tmp_path)
    size = file.stat().st_size
    real = os.fdatasync
    failures = iter([OSError(5, "Input/output error")])

    def fdatasync(fd: int) -> None:
        for failure in failures:
            raise failure
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with pytest.raises(BufferWriteError, match="Input/output error"):
        await fill(buffer, "refused")
    await fill(buffer, "after")
    assert file.stat().st_size == size
    assert len(buffer_files(tmp_path)) == 2
    assert texts(await drain(buffer)) == ["before", "after"]
    await buffer.close()
