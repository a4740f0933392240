"""Re-encryption: in the end nothing needs an old key, whatever happens meanwhile, and nothing that
was changed or moved by SQL is made good by it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

import asyncpg
import pytest

from monarq.clock import ManualClock
from monarq.crypto import Cipher, fingerprint
from monarq.errors import EncryptionKeyError, InvalidRequestError
from monarq.model import Ack, Pop, Push, PushItem
from monarq.store import Store
from monarq.store.paging import token
from monarq.store.rekeying import RekeyReport, RekeyStep, rekey
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.at_rest import run_sql, sealed_without_place, swap
from tests.store.calls import ack, pop, pop_one, push, push_items, push_many
from tests.store.conftest import KEY, OpenStore, Place
from tests.store.scenarios import (
    DEAD,
    FAILED,
    WORK,
    dead_letters,
    drain,
    every,
    stored_payloads,
    visible_state,
)
from tests.store.sealed_scene import ERROR, OUTPUT, answer_in_every_way, two_queues
from tests.store.waiting import wait_until

pytestmark = pytest.mark.smoke

NEW = bytes(range(100, 132))
LOST = bytes(range(200, 232))
FIRST = fingerprint(NEW).hex()
OLD = fingerprint(KEY).hex()


async def rotate(store: Store, *keys: bytes, limit: int = 7) -> RekeyReport:
    return await rekey(store, Cipher(keys or (NEW, KEY)), limit=limit)


async def fill(store: Store) -> None:
    """Sealed values wherever there can be some: also in a dead queue and in segments of many."""
    await two_queues(store)
    await answer_in_every_way(store)
    sealing = {"encryptionEnabled": True}
    for kind, name in ((None, "ordered"), (WORK, "work")):
        await store.configure(f"{name}-grave", kind=kind, options=sealing)
        dying = {**sealing, "deadQueue": f"{name}-grave"}
        await store.configure(name, kind=kind, options=dying)
        items = [
            PushItem(name, b"%d" % n, transaction_id=f"t{n}" if n % 2 else None) for n in range(20)
        ]
        await push_items(store, *items)
        for status in (DEAD, FAILED):
            message, lease = await pop_one(store, name)
            await ack(store, message, lease, status, error=ERROR)
    await push(store, "plain", b'"plain"')


async def whole_state(store: Store) -> dict[str, Any]:
    state = await visible_state(store)
    state["attempts"] = await every(store.list_attempts)
    state["deliveries"] = await every(store.list_deliveries)
    state["failing"] = await store.list_failing("ordered", "__QUEUE_MODE__")
    return state


async def test_all_sealed_values_are_under_the_first_key_and_say_what_they_said(
    store: Store, open_another: OpenStore
) -> None:
    await fill(store)
    before = await whole_state(store)
    rotated = await open_another(keys=[NEW, KEY])
    report = await rotate(rotated)
    assert report.is_done
    assert (report.keys, report.unreadable) == ({FIRST: report.changed}, 0)
    assert report.changed > 60
    new_only = await open_another(keys=[NEW])
    assert await whole_state(new_only) == before
    first = (await every(new_only.list_items, "w"))[0]
    output = await new_only.read_output(f"{first.partition_id}-{first.seq}", 1)
    assert output.data == OUTPUT
    # Nothing is left to do, and nothing is done; a second pass makes sure of it.
    again = await rotate(rotated)
    assert (again.changed, again.passes, again.keys) == (0, 2, report.keys)


async def test_a_store_that_kept_old_payloads_in_memory_does_not_bring_them_back(
    store: Store, open_another: OpenStore
) -> None:
    """Deaths and deletions write what was read some time ago."""
    await store.configure("q", options={"encryptionEnabled": True})
    for n in range(2):
        filler = "x" * 20_000
        items = [PushItem("q", f'"{filler}{i}"'.encode(), partition=f"p{n}") for i in range(3)]
        await push_items(store, *items)
    assert len(await stored_payloads(store, "q")) == 6
    rotated = await open_another(keys=[NEW, KEY])
    await rotate(rotated)
    serving = await open_another(keys=[KEY, NEW])
    for where in (store, serving):
        popped = await pop(serving, "q", 1)
        [message] = popped.messages
        await ack(where, message, popped.lease_id, DEAD)
    rows = await every(serving.list_messages, "q")
    await store.delete_message(rows[2].partition_id, rows[2].transaction_id)
    report = await rotate(rotated)
    assert (report.changed, report.is_done) == (0, True)


async def test_what_was_sealed_before_values_were_bound_is_bound(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await two_queues(store)
    for queue, table, column in (("q", "segments", "data"), ("w", "items", "payload")):
        for name in ("a", "b"):
            await push(store, queue, b'"x"', transaction_id=name)
        # Two values that could be exchanged unseen.
        seqs = "last_seq" if table == "segments" and not place.is_postgres else "first_seq"
        seqs = "seq" if table == "items" else seqs
        for n in (1, 2):
            await run_sql(
                place,
                f"update {table} set {column} = ? where {seqs} = {n}",
                sealed_without_place(KEY, b'"%d"' % n),
            )
    again = await open_another(keys=[KEY])
    report = await rotate(again, KEY)
    assert (report.changed, report.keys, report.is_done) == (4, {OLD: 4}, True)
    await swap(place, "items", "payload", "seq = 1", "seq = 2")
    with pytest.raises(EncryptionKeyError, match="moved"):
        await pop(again, "w", 2)
    assert [m.payload for m in (await pop(again, "q", 2)).messages] == [b'"1"', b'"2"']


async def test_it_may_be_ended_after_any_step_and_begun_again(
    store: Store, open_another: OpenStore
) -> None:
    await fill(store)
    before = await whole_state(store)
    steps = 0
    while True:
        rotated = await open_another(keys=[NEW, KEY])
        after, changed = None, False
        for _ in range(steps + 1):
            step = await rotated.rekey_step(limit=3, after=after)
            assert step.rows <= 3
            changed = changed or bool(step.changed)
            after = step.next
            if after is None:
                break
        assert await whole_state(rotated) == before
        if after is None and not changed:
            break
        steps += 4
    new_only = await open_another(keys=[NEW])
    assert await whole_state(new_only) == before


async def test_values_under_an_unknown_key_stay_and_are_counted(
    store: Store, open_another: OpenStore
) -> None:
    lost = await open_another(keys=[LOST, KEY])
    await two_queues(lost)
    await push_many(lost, "q", 3)
    await push_many(store, "q", 2)
    rotated = await open_another(keys=[NEW, KEY])
    report = await rotate(rotated)
    assert not report.is_done
    assert report.keys == {FIRST: 2, fingerprint(LOST).hex(): 3}
    assert (report.unreadable, report.changed) == (3, 2)
    found = await open_another(keys=[NEW, LOST])
    assert len(await stored_payloads(found, "q")) == 5
    assert (await rotate(found, NEW, LOST)).is_done


async def test_a_value_that_was_moved_by_sql_is_not_made_good(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await two_queues(store)
    for name in ("a", "b"):
        await push(store, "w", f'"{name}"'.encode(), transaction_id=name)
    await swap(place, "items", "payload", "seq = 1", "seq = 2")
    rotated = await open_another(keys=[NEW, KEY])
    report = await rotate(rotated)
    assert (report.is_done, report.unreadable, report.keys) == (False, 2, {OLD: 2})
    with pytest.raises(EncryptionKeyError):
        await pop(rotated, "w", 2)
    await swap(place, "items", "payload", "seq = 1", "seq = 2")
    assert (await rotate(rotated)).is_done
    assert [m.payload for m in (await pop(rotated, "w", 2)).messages] == [b'"a"', b'"b"']


@pytest.mark.parametrize("place", POSTGRES_NAMES, indirect=True)
async def test_a_row_that_changes_between_reading_and_writing_is_left_for_the_next_pass(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    """A message that is deleted meanwhile, say, must not come back."""
    await two_queues(store)
    await push_many(store, "w", 2)
    rotated = await open_another(keys=[NEW, KEY])
    search_path = {"search_path": f'"{place.schema}"'}
    other = await asyncpg.connect(place.address, server_settings=search_path)
    try:
        async with other.transaction():
            await other.execute("update items set payload = $1 where seq = 1", b'"changed"')
            rekeying = asyncio.create_task(_step_of_items(rotated))
            blocked = "exists (select from pg_stat_activity where {} = any (pg_blocking_pids(pid)))"
            await wait_until(other, blocked.format("pg_backend_pid()"))
        step = await rekeying
    finally:
        await other.close()
    assert step.missed == 1
    assert await run_sql(place, "select payload from items where seq = 1") == [(b'"changed"',)]
    assert (await rotate(rotated)).is_done


async def _step_of_items(store: Store) -> RekeyStep:
    """Not the first step of a pass, which waits for whoever is writing."""
    step = await store.rekey_step(after=token("rekey", (1,)))
    assert step.table == "items"
    return step


@pytest.mark.slow
async def test_pushes_pops_deaths_moves_and_retention_go_on_meanwhile(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    """Every message is delivered once, with what it said, and in the end only the first key is
    needed."""
    sealing = {"encryptionEnabled": True, "retryLimit": 0}
    await store.configure("grave", options=sealing)
    await store.configure("buried", options={**sealing, "deadQueue": "grave"})
    await store.configure("lettered", options=sealing)
    await store.configure(
        "kept",
        options={
            **sealing,
            "retentionEnabled": True,
            "retentionSeconds": 1,
            "completedRetentionSeconds": 1,
        },
    )
    await store.configure("w", kind=WORK, options={"encryptionEnabled": True})
    names = ("buried", "lettered", "kept", "w")
    expected: list[bytes] = []

    async def push_some(where: Store, start: int) -> None:
        for queue in names:
            payloads = [f'"{queue} {n}"'.encode() for n in range(start, start + 20)]
            await where.push([Push([PushItem(queue, payload) for payload in payloads])])
            expected.extend(payloads)

    for start in range(0, 100, 20):
        await push_some(store, start)
    rotated, serving = await open_another(keys=[NEW, KEY]), await open_another(keys=[NEW, KEY])
    done: list[bytes] = []
    report: list[RekeyReport] = []

    async def serve() -> None:
        start = 1000
        while not report or start < 1200:
            await push_some(serving, start)
            start += 20
            popped = await serving.pop([Pop(queue=queue, batch=15) for queue in names])
            for answer in popped:
                assert not isinstance(answer, Exception), answer
                done.extend(message.payload for message in answer.messages)
                await serving.ack(
                    [
                        Ack(
                            status=DEAD,
                            error=ERROR,
                            lease_id=answer.lease_id,
                            transaction_id=message.transaction_id,
                            partition_id=message.partition_id,
                        )
                        for message in answer.messages
                    ]
                )
            clock.advance(1.5)
            await serving.lifecycle()
            await serving.redrive(all=True, to_queue="grave", limit=5) if start % 40 else None

    async def seal_anew() -> None:
        report.append(await rotate(rotated, limit=5))

    await asyncio.gather(serve(), seal_anew())
    assert report[0].is_done
    # What was moved while the last pass went on is at most this: there was no old key left to move.
    final = await rotate(rotated)
    assert (final.changed, final.is_done) == (0, True)
    assert len(done) == len(set(done))
    assert set(done) <= set(expected)
    new_only = await open_another(keys=[NEW])
    for queue in ("buried", "lettered", "w"):
        done += [message.payload for message in await drain(new_only, queue)]
    assert len(done) == len(set(done))
    kept = {payload for payload in expected if b"kept" in payload}
    assert set(done) | kept == set(expected)
    letters = await dead_letters(new_only)
    assert {letter.error for letter in letters} <= {ERROR}
    assert set(await stored_payloads(new_only, "grave")) <= set(expected)


@pytest.mark.slow
async def test_a_step_reads_no_more_than_some_megabytes(
    store: Store, open_another: OpenStore
) -> None:
    for queue, kind in (("q", None), ("w", WORK)):
        await store.configure(queue, kind=kind, options={"encryptionEnabled": True})
        for size in (3, 3, 3, 10, 1):
            await push(store, queue, b'"%s"' % (b"x" * (size << 20)))
    rotated = await open_another(keys=[NEW, KEY])
    steps: list[RekeyStep] = []
    report = await rekey(rotated, Cipher([NEW, KEY]), told=lambda _, step: steps.append(step))
    assert (report.changed, report.is_done, report.passes) == (10, True, 2)
    for table in ("segments", "items"):
        assert [step.rows for step in steps if step.table == table] == 2 * [2, 1, 1, 1]


async def test_a_value_that_moves_to_where_the_only_pass_has_been_is_found(
    store: Store, open_another: OpenStore
) -> None:
    """All others are under the first key, so that the pass finds nothing to do."""
    serving = await open_another(keys=[NEW, KEY])
    sealing = {"encryptionEnabled": True, "maxAttempts": 1}
    for queue in ("grave", "between"):
        await serving.configure(queue, kind=WORK, options=sealing)
        await push_many(serving, queue, 1)
    await serving.configure("mortal", kind=WORK, options={**sealing, "deadQueue": "grave"})
    await push_many(store, "mortal", 1)  # under the old key
    message, lease = await pop_one(serving, "mortal")
    steps: list[str] = []

    class Dying:
        """Lets the message die when the first pass has looked into its dead queue."""

        async def rekey_step(self, *, limit: int, after: str | None) -> RekeyStep:
            step = await serving.rekey_step(limit=limit, after=after)
            steps.append(step.table)
            if steps.count("items") == 2 and step.table == "items":
                await ack(serving, message, lease, DEAD)
            return step

    report = await rekey(cast(Store, Dying()), Cipher([NEW, KEY]), limit=1)
    assert (report.changed, report.is_done) == (1, True)
    found = await drain(await open_another(keys=[NEW]), "grave")
    assert [item.payload for item in found] == [b"1", b"1"]


# --- the command -------------------------------------------------------------------------


def environment(place: Place, keys: list[bytes]) -> Mapping[str, str]:
    return os.environ | {
        "MONARQ_STORE": place.address,
        "MONARQ_SCHEMA": place.schema,
        "MONARQ_ENCRYPTION_KEYS": ",".join(key.hex() for key in keys),
    }


COMMAND = [sys.executable, "-m", "monarq", "rekey"]


async def run_rekey(
    place: Place, keys: list[bytes], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, *arguments],
        env=environment(place, keys),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


async def under_first_key(place: Place) -> int:
    beginning = "substr(payload, 1, 5)" if not place.is_postgres else "substring(payload for 5)"
    [(count,)] = await run_sql(
        place, f"select count(*) from items where {beginning} = ?", b"\x02" + fingerprint(NEW)
    )
    return int(count)


@pytest.mark.slow
async def test_the_command_may_be_killed_at_any_time_and_run_again(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await store.configure("w", kind=WORK, options={"encryptionEnabled": True})
    for _ in range(5):
        await push_many(store, "w", 1000)
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--rows", "2", env=environment(place, [NEW, KEY]),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    async with asyncio.timeout(60):
        while await under_first_key(place) < 50:
            assert process.returncode is None
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert 50 <= await under_first_key(place) < 5000
    done = await run_rekey(place, [NEW, KEY], "--json", "--rows", "1000")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["done"], answer["keys"]) == (True, {FIRST: 5000})
    assert 0 < answer["changed"] < 5000
    assert await under_first_key(place) == 5000
    new_only = await open_another(keys=[NEW])
    assert len((await pop(new_only, "w", 5000)).messages) == 5000


@pytest.mark.slow
async def test_the_command_says_what_is_left_and_fails(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await two_queues(store)
    await push_many(store, "w", 3)
    done = await run_rekey(place, [NEW])
    assert done.returncode == 1
    assert f"3 values under {OLD}, another key" in done.stdout
    assert "3 values cannot be opened" in done.stdout
    done = await run_rekey(place, [])
    assert done.returncode == 1
    assert "encryption_keys" in done.stderr
    done = await run_rekey(place, [NEW, KEY])
    assert (done.returncode, done.stderr) == (0, "")
    assert "no value needs another key than the first" in done.stdout


def test_the_command_is_for_stores() -> None:
    for arguments, wrong in (
        (("--url", "http://127.0.0.1:9"), "give --store"),
        (("--store", "memory:"), "in memory"),
    ):
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert wrong in done.stderr


async def test_without_a_key_a_step_is_refused(store: Store, open_another: OpenStore) -> None:
    keyless = await open_another(keys=[])
    with pytest.raises(EncryptionKeyError):
        await keyless.rekey_step()
    with pytest.raises(InvalidRequestError):
        await store.rekey_step(after="nonsense")
