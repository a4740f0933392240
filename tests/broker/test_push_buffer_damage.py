"""Buffer files that were cut short or damaged: the rest of what was answered is still there."""

# ruff: noqa: ASYNC240 (a test may wait for its files)

import base64
import shutil
import struct
from pathlib import Path

import msgspec
import pytest

from monarq.broker.buffer_records import HEADER, Frame, decode_entry, encode_entry
from monarq.broker.buffer_records import Entry as BufferEntry
from monarq.broker.push_buffer import PushBuffer
from monarq.broker.set_aside import read_poison
from monarq.crypto import Cipher
from monarq.errors import EncryptionKeyError, InvalidRequestError
from monarq.model import Push, PushItem
from tests.broker.buffering import buffer_files, drain, fill, push_of, texts

TEXTS = ["first", "second", "third"]

#: A record of the first version, as a file may hold it for ever.
VERSION_1 = (
    "4d51310000000049b86971f9a7e6dcf194a46d61726b05c39193919da171c40131a170a174a57472616365a5"
    "7370616365a47461736bc4027b7d0304cb401600000000000006cb401e000000000000a870726f6475636572"
    "c2"
)


async def written(directory: Path, cipher: Cipher | None = None) -> tuple[Path, bytes, list[int]]:
    """A file with three records: its path, its content, and where each record ends."""
    buffer = await PushBuffer.open(directory, cipher=cipher)
    ends = []
    for text in TEXTS:
        await fill(buffer, text)
        ends.append(buffer.state.bytes)
    await buffer.close()
    [path] = buffer_files(directory)
    return path, path.read_bytes(), ends


def set_aside(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("set-aside/*")}


async def replayed(directory: Path, path: Path, content: bytes) -> list[str]:
    """What is replayed of a file with this content; nothing is left but what was set aside."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    shutil.rmtree(directory / "set-aside", ignore_errors=True)
    buffer = await PushBuffer.open(directory)
    found = texts(await drain(buffer))
    assert sorted(buffer.state.set_aside) == sorted(set_aside(directory))
    await buffer.close()
    assert buffer_files(directory) == []
    return found


@pytest.mark.slow
async def test_cut_at_any_length_all_whole_records_are_kept_and_no_other(tmp_path: Path) -> None:
    path, content, ends = await written(tmp_path)
    for length in range(len(content) + 1):
        whole = [text for text, end in zip(TEXTS, ends, strict=True) if end <= length]
        assert await replayed(tmp_path, path, content[:length]) == whole, length
        assert set_aside(tmp_path) == {}


async def test_a_file_that_a_power_cut_filled_with_zeros_is_cut_there(tmp_path: Path) -> None:
    path, content, ends = await written(tmp_path)
    for end in (0, *ends):
        for zeros in (1, HEADER.size, 4096):
            whole = [text for text, other in zip(TEXTS, ends, strict=True) if other <= end]
            assert await replayed(tmp_path, path, content[:end] + bytes(zeros)) == whole
            assert set_aside(tmp_path) == {}


@pytest.mark.slow
async def test_any_damaged_byte_costs_its_own_record_which_is_set_aside(tmp_path: Path) -> None:
    path, content, ends = await written(tmp_path)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x5A
        hit = sum(end <= position for end in ends)
        others = [text for index, text in enumerate(TEXTS) if index != hit]
        assert await replayed(tmp_path, path, bytes(damaged)) == others, position
        [aside] = set_aside(tmp_path).values()
        start, end = ([0, *ends][hit], ends[hit])
        assert aside == bytes(damaged[start:end]), position


async def test_garbage_between_records_is_set_aside_whatever_its_length(tmp_path: Path) -> None:
    path, content, ends = await written(tmp_path)
    for garbage in (b"x", b"MQ1" * 50, b"\xff" * 3_000_000):
        spoilt = content[: ends[0]] + garbage + content[ends[0] :]
        assert await replayed(tmp_path, path, spoilt) == TEXTS
        [aside] = set_aside(tmp_path).values()
        assert aside == garbage


async def test_a_payload_that_looks_like_a_record_never_passes_for_one(tmp_path: Path) -> None:
    """A caller cannot know the salt of the file, whatever else it knows."""
    forged = BufferEntry("forged", 0, [push_of("forged")])
    payload = b"".join(encode_entry(forged, salt) for salt in range(2000))
    buffer = await PushBuffer.open(tmp_path)
    await buffer.append("m", [Push([PushItem("q", payload)])])
    await fill(buffer, "behind")
    await buffer.close()
    [path] = buffer_files(tmp_path)
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    assert await replayed(tmp_path, path, bytes(content)) == ["behind"]


async def test_a_file_that_cannot_be_read_is_set_aside_and_the_next_ones_are_replayed(
    tmp_path: Path,
) -> None:
    buffer = await PushBuffer.open(tmp_path, file_bytes=1)
    await fill(buffer, *TEXTS)
    await buffer.close()
    bad = buffer_files(tmp_path)[1]
    bad.unlink()
    bad.mkdir()  # opens, but every read of it fails
    buffer = await PushBuffer.open(tmp_path)
    assert texts(await drain(buffer)) == ["first", "third"]
    [name] = buffer.state.set_aside
    assert name.endswith(".unreadable")
    assert buffer_files(tmp_path) == []
    await buffer.close()


async def test_records_whose_key_is_missing_are_set_aside_and_can_be_replayed_with_it(
    tmp_path: Path,
) -> None:
    cipher = Cipher([b"k" * 32])
    path, content, ends = await written(tmp_path, cipher)
    assert await replayed(tmp_path, path, content) == []
    assert sorted(set_aside(tmp_path).values()) == sorted(
        content[start:end] for start, end in zip([0, *ends], ends, strict=False)
    )


async def test_what_was_set_aside_can_be_read_by_a_person_and_put_back(tmp_path: Path) -> None:
    item = PushItem("q", b'{\n  "n": 12345678901234567890.10\n}', "p", "t", run_at=5, priority=1)
    odd = PushItem("q", b"\xff not JSON", headers=b"\xff")
    for cipher in (None, Cipher([b"k" * 32])):
        directory = tmp_path / str(cipher is None)
        buffer = await PushBuffer.open(directory, cipher=cipher)
        await buffer.append("m", [push_of("good"), Push([item, odd], "me")])
        [record] = await buffer.peek()
        for _ in range(2):  # as after a crash between setting aside and going on
            await buffer.set_aside([(record, 1, InvalidRequestError("it is bad"))])
        await buffer.close()
        [path] = directory.glob("set-aside/*.poison")
        lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        assert len(lines) == 2
        assert lines[0]["reason"] == "it is bad"
        assert (lines[0]["code"], lines[0]["queues"]) == ("invalid_request", ["q"])
        if cipher is None:
            first, second = lines[0]["items"]
            assert (first["queue"], first["partition"], first["transactionId"]) == ("q", "p", "t")
            assert first["runAt"] == "1970-01-01T00:00:00.000005Z"
            assert base64.b64decode(second["payloadBase64"]) == odd.payload
        [(_, push)] = read_poison(path, cipher)
        assert push.producer == "me"
        assert push.items[0] == msgspec.structs.replace(
            item, payload=b'{"n":12345678901234567890.10}'
        )
        assert push.items[1] == msgspec.structs.replace(odd, headers=None)
        if cipher is not None:
            with pytest.raises(EncryptionKeyError):
                list(read_poison(path))


def test_a_buffered_message_takes_little_more_than_its_payload() -> None:
    """As the figures in docs/operations/failover.md say."""
    item = PushItem("orders", b"x" * 256, "customer-17", transaction_id="x" * 36)
    one = encode_entry(BufferEntry("m" * 28, 1_700_000_000_000_000, [Push([item])]), 1)
    many = encode_entry(BufferEntry("m" * 28, 1_700_000_000_000_000, [Push([item] * 100)]), 1)
    assert len(one) < 395
    assert len(many) / 100 < 256 + 17 + 36 + 20


def test_records_of_version_1_are_read_as_they_were_written() -> None:
    """Files outlive an upgrade: fields may be added at the end, and nowhere else."""
    written = bytes.fromhex(VERSION_1)
    length, *_ = struct.unpack_from(">I", written, 4)
    frame = Frame(0, len(written), written[3], written[HEADER.size :])
    assert (written[:3], length) == (b"MQ1", len(frame.body))
    entry = decode_entry(frame)
    assert (entry.mark, entry.at, entry.attempted) == ("mark", 5, True)
    [push] = entry.pushes
    assert push.producer == "producer"
    [item] = push.items
    assert item == PushItem("q", b"1", "p", "t", "trace", "space", "task", b"{}", 3, 4, 5.5, 6, 7.5)


async def test_a_strangers_files_in_the_directory_hinder_nobody(tmp_path: Path) -> None:
    (tmp_path / "0001").mkdir(parents=True)
    for name in ("notes.txt", "1.buffer", "0000000001.x.y.buffer", "position.new"):
        (tmp_path / "0001" / name).write_text("x")
    (tmp_path / "0002").write_text("a file")
    (tmp_path / "readme").write_text("x")
    buffer = await PushBuffer.open(tmp_path)
    await fill(buffer, *TEXTS)
    assert texts(await drain(buffer)) == TEXTS
    await buffer.close()
    assert (tmp_path / "0001" / "notes.txt").exists()
