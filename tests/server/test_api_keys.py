"""API keys: who is let in by one, for how long, and what the file of them holds."""

import json
import os
import threading
from pathlib import Path

import pytest

from monarq.api_keys import create_key, revoke_key
from monarq.clock import SECOND
from monarq.errors import SettingsError
from monarq.operations.operation import Role
from monarq.server import auth as auth_module
from monarq.server.exchange import Principal
from tests.server.credentials import SECRET, desk


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def write(path: Path, content: str) -> None:
    path.write_text(content)


def remove(path: Path) -> None:
    path.unlink()


@pytest.fixture
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_module, "LOOK_AGAIN_SECONDS", 0.0)


async def test_an_api_key_is_accepted_in_both_headers(key_file: Path) -> None:
    key, _ = create_key(key_file, name="billing", role="write", now=0)
    async with desk(api_keys=str(key_file)) as at:
        expected = Principal("billing", Role.WRITE)
        assert await at.bearer(key) == expected
        assert await at.headers({"x-api-key": key}) == expected


async def test_a_wrong_or_cut_api_key_is_refused(key_file: Path) -> None:
    key, kept = create_key(key_file, name="a", role="admin", now=0)
    other, _ = create_key(key_file, name="b", role="read", now=0)
    mixed = "_".join([*key.split("_", 2)[:2], other.split("_", 2)[2]])
    async with desk(api_keys=str(key_file)) as at:
        for wrong in (key[:-1], key + "x", mixed, "mq_", "mq__", f"mq_{kept.id}_", f"mq_{kept.id}"):
            await at.refused(wrong, "API key")
        await at.refused(f"mq_{kept.id}_{kept.hash}", "API key")
        await at.refused(f"mq__{'0' * 64}", "API key")


def test_the_file_holds_no_key_and_is_its_owners_alone(key_file: Path) -> None:
    key, _ = create_key(key_file, name="a", role="admin", now=0)
    assert key.split("_", 2)[2] not in key_file.read_text()
    assert key_file.stat().st_mode & 0o777 == 0o600


async def test_a_revoked_key_is_refused_although_it_was_remembered(
    key_file: Path, look_at_once: None
) -> None:
    key, kept = create_key(key_file, name="a", role="write", now=0)
    async with desk(api_keys=str(key_file)) as at:
        await at.bearer(key)
        later, _ = create_key(key_file, name="b", role="write", now=0)
        assert (await at.bearer(later)).subject == "b"
        revoke_key(key_file, kept.id)
        await at.refused(key, "revoked")
        await at.bearer(later)
        remove(key_file)
        await at.refused(later, "not known")


async def test_a_broken_edit_of_the_file_locks_nobody_out(
    key_file: Path, look_at_once: None
) -> None:
    key, _ = create_key(key_file, name="a", role="write", now=0)
    async with desk(api_keys=str(key_file)) as at:
        write(key_file, '{"keys": [')
        assert (await at.bearer(key)).subject == "a"


async def test_an_api_key_expires(key_file: Path) -> None:
    async with desk(jwt_secret=SECRET) as at:
        ends = at.clock.now() + 10 * SECOND
    key, _ = create_key(key_file, name="a", role="write", now=0, expires_at=ends)
    async with desk(api_keys=str(key_file)) as at:
        await at.bearer(key)
        at.clock.advance(10)
        await at.refused(key, "expired")


async def test_api_keys_are_refused_where_none_are_configured() -> None:
    async with desk(jwt_secret=SECRET) as at:
        await at.refused("mq_abc_def", "not accepted here")


@pytest.mark.parametrize("content", ["", "[]", '{"keys": [{"id": 1}]}'])
async def test_a_file_that_holds_no_keys_stops_the_start(content: str, key_file: Path) -> None:
    write(key_file, content)
    with pytest.raises(SettingsError, match="api_keys"):
        async with desk(api_keys=str(key_file)):
            pass


def test_keys_made_at_the_same_time_are_all_kept(key_file: Path) -> None:
    def make() -> None:
        for _ in range(10):
            create_key(key_file, name=str(os.getpid()), role="read", now=0)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(key_file.read_text())["keys"]) == 40
