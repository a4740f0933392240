"""The published client with a token, against a server that demands one."""

import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
import pytest_asyncio

from tests.interop.conftest import NewQueen
from tests.interop.verbs import pop, push
from tests.server.serving import ServerProcess, sqlite_settings

SECRET = "a secret of at least thirty-two bytes"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("guarded")
    settings = sqlite_settings(directory) | {"auth": True, "jwt_secret": SECRET}
    with ServerProcess(settings) as server:
        yield server


def _token(subject: str, role: str) -> str:
    claims = {"sub": subject, "role": role, "exp": int(time.time()) + 600}
    return jwt.encode(claims, SECRET, algorithm="HS256")


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
class TestIdentity:
    async def test_a_producer_is_known_by_its_token(
        self, new_queen: NewQueen, guarded: ServerProcess, name: str
    ) -> None:
        queen = new_queen(urls=[guarded.url], bearer_token=_token("alice", "write"))
        await push(queen, name, {"producerSub": "mallory"})
        [message] = await pop(queen, name)
        assert message["producerSub"] == "alice"

    async def test_a_caller_without_a_token_is_refused(
        self, new_queen: NewQueen, guarded: ServerProcess, name: str
    ) -> None:
        with pytest.raises(Exception) as refused:
            await push(new_queen(urls=[guarded.url]), name, 1)
        assert _status(refused.value) == 401

    async def test_a_reader_may_not_push(
        self, new_queen: NewQueen, guarded: ServerProcess, name: str
    ) -> None:
        queen = new_queen(urls=[guarded.url], bearer_token=_token("bob", "read"))
        assert isinstance(await queen.admin.list_queues(), dict)
        with pytest.raises(Exception) as refused:
            await push(queen, name, 1)
        assert _status(refused.value) == 403


def _status(error: BaseException) -> Any:
    return error.response.status_code  # type: ignore[attr-defined]
