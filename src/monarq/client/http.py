"""A broker behind HTTP, or several of which any can serve.

A call goes to the next broker when one cannot be reached or cannot serve, within bounds. Every
call may be repeated: pushes carry transaction ids, so that what got through is not stored twice,
and an ack that was repeated takes `already_acked` for what it wanted. Only a transaction that may
have happened is not repeated: its caller is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from monarq.client.http_admin import HttpAdmin
from monarq.client.http_errors import error_of, from_code
from monarq.client.http_items import item_body
from monarq.client.http_operations import quoted
from monarq.client.http_pops import HttpPops, Lane
from monarq.client.http_reading import message_of, micros, pushed_of
from monarq.client.link import Admin, Link
from monarq.client.local_proof import LocalProof
from monarq.client.own_transaction import OwnTransactions
from monarq.errors import (
    AlreadyAckedError,
    ClientClosedError,
    InvalidRequestError,
    LeaseError,
    MonarqError,
    StoreUnavailableError,
)
from monarq.model import (
    Ack,
    Acked,
    AckStatus,
    Pop,
    Popped,
    Push,
    Pushed,
    Renew,
    Renewed,
    StartFrom,
    Transaction,
    TransactionDone,
)
from monarq.operations.codec import decode
from monarq.store.contract import Outcome
from monarq.times import iso
from monarq.wire.ack import AckAnswer
from monarq.wire.lease import ExtendAnswer
from monarq.wire.pop import AckedPopAnswer, PopAnswer
from monarq.wire.push import PushedItem
from monarq.wire.transaction import AckResult, TransactionAnswer

T = TypeVar("T")

_TRIES = 6
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_CONNECTIONS = 100
#: The request never reached a broker.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
#: Nothing was begun.
_REFUSED_CODES = ("overloaded", "draining")
#: The broker, or the way to it, cannot serve: another one may.
_ELSEWHERE = (502, 503, 504)
#: Beyond the time that a broker lets a pop wait.
_ANSWER_SECONDS = 10.0


class HttpLink(Link):
    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str | None,
        timeout: float,
        own_transactions: OwnTransactions | None = None,
    ) -> None:
        super().__init__(own_transactions)
        for url in urls:
            try:
                httpx.URL(url)
            except httpx.InvalidURL as error:
                raise InvalidRequestError(f"{url!r} is not the URL of a broker: {error}") from None
        self._urls = [url.rstrip("/") for url in urls]
        self._turns = itertools.count(random.randrange(len(self._urls)))
        self._timeout = timeout
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._headers = headers | {"Content-Type": "application/json"}
        self._local = None if token is not None else LocalProof(self._urls)
        self._http: httpx.AsyncClient | None = None
        self._tls: ssl.SSLContext | None = None
        self._pops = HttpPops(self._connect)
        self._under_way: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._admin = HttpAdmin(self.call)

    async def open(self) -> None:
        self._http = self._connect()
        self._pops = HttpPops(self._connect)
        try:
            await self.call("GET", "/api/v1/resources/queues", Any, query={"limit": 1})
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends what is under way, which may wait for long."""
        if self._http is not None:
            await self._pops.leave_all()
        http, self._http = self._http, None
        if http is None:
            return
        for call in self._under_way:
            call.reschedule(0)
        if self._under_way:
            self._idle = asyncio.Event()
            await self._idle.wait()
        await http.aclose()
        await self._pops.close()

    def _connect(self) -> httpx.AsyncClient:
        if self._tls is None:
            # Made once: to read all certificates takes longer than a call.
            self._tls = httpx.create_ssl_context()
        limits = httpx.Limits(max_connections=_CONNECTIONS)
        # The proof is for this machine: never for a proxy.
        direct = None if self._local is None else dict.fromkeys(self._local.patterns)
        return httpx.AsyncClient(
            headers=self._headers, limits=limits, verify=self._tls, mounts=direct
        )

    @property
    def admin(self) -> Admin:
        return self._admin

    # --- the hot calls -----------------------------------------------------------------------

    async def _push(self, push: Push) -> list[Pushed]:
        body = {"items": [item_body(item) for item in push.items]}
        path = "/api/v1/jobs" if push.commands else "/api/v1/push"
        answer = await self.call("POST", path, list[PushedItem], body=body)
        return [pushed_of(each) for each in answer]

    async def _pop(self, pop: Pop, wait_seconds: float) -> Popped:
        query = _pop_query(pop)
        if wait_seconds > 0:
            query |= {"wait": "true", "timeout": round(wait_seconds * 1000)}

        async def call(lane: Lane | None) -> Popped:
            content, _ = await self._send(
                "GET", _pop_path(pop), query=query, wait_seconds=wait_seconds, lane=lane
            )
            if not content:
                return Popped(messages=[])
            return _popped(_decoded(content, PopAnswer))

        async def release(popped: Popped) -> None:
            await self._release(popped, pop.group)

        return await self._pops.run(call, release, waits=wait_seconds > 0)

    async def _release(self, popped: Popped, group: str) -> None:
        """If that is not possible its lease has to run out."""
        if popped.lease_id is not None:
            release = Ack(status=AckStatus.RELEASE, lease_id=popped.lease_id, group=group)
            with contextlib.suppress(MonarqError):
                await self._ack([release])

    async def _ack(self, acks: Sequence[Ack]) -> list[Outcome[Acked]]:
        body = {"acknowledgments": [_ack(ack) for ack in acks]}
        content, repeated = await self._send("POST", "/api/v1/ack/batch", body)
        answers = _decoded(content, list[AckAnswer])
        return [_acked(ack, answer, repeated) for ack, answer in zip(acks, answers, strict=True)]

    async def _ack_and_pop(
        self, acks: Sequence[Ack], pop: Pop
    ) -> tuple[list[Outcome[Acked]], Popped]:
        body = {"acknowledgments": [_ack(ack) for ack in acks]}

        async def call(lane: Lane | None) -> tuple[list[Outcome[Acked]], Popped]:
            content, repeated = await self._send(
                "POST", _pop_path(pop), body, query=_pop_query(pop), lane=lane
            )
            answer = _decoded(content, AckedPopAnswer)
            acked = [
                _acked(ack, told, repeated)
                for ack, told in zip(acks, answer.acknowledged, strict=True)
            ]
            return acked, _popped(answer)

        async def release(done: tuple[list[Outcome[Acked]], Popped]) -> None:
            await self._release(done[1], pop.group)

        return await self._pops.run(call, release, waits=False)

    async def _renew(self, renew: Renew) -> Renewed:
        path = f"/api/v1/lease/{quoted(renew.lease_id)}/extend"
        answer = await self.call("POST", path, ExtendAnswer, body={"seconds": renew.seconds})
        return Renewed(renew.lease_id, micros(answer.expires_at))

    async def _transaction(self, transaction: Transaction) -> TransactionDone:
        operations = [
            {"type": "ack", **_ack(operation)}
            if isinstance(operation, Ack)
            else {"type": "push", "items": [item_body(item) for item in operation.items]}
            for operation in transaction.operations
        ]
        body = {"operations": operations, "requiredLeases": transaction.required_leases}
        content, _ = await self._send("POST", "/api/v1/transaction", body, repeatable=False)
        answer = _decoded(content, TransactionAnswer)
        return TransactionDone(
            [
                _acked_of(result)
                if isinstance(result, AckResult)
                else [pushed_of(each) for each in result.items]
                for result in answer.results
            ]
        )

    # --- one call ----------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> T:
        """The answer, decoded as that type."""
        content, _ = await self._send(method, path, body, query=query)
        return _decoded(content, answer)

    async def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        wait_seconds: float = 0.0,
        repeatable: bool = True,
        lane: Lane | None = None,
    ) -> tuple[bytes, bool]:
        """The answer's body, and whether an earlier try may have got through."""
        until_closed = asyncio.timeout(None)
        self._under_way.add(until_closed)
        try:
            async with until_closed:
                return await self._try(
                    method, path, body, query or {}, wait_seconds, repeatable, lane
                )
        except TimeoutError:
            error = ClientClosedError("the client was closed meanwhile")
            error.add_note("it may have happened all the same")
            raise error from None
        finally:
            self._under_way.remove(until_closed)
            if not self._under_way:
                self._idle.set()

    async def _try(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any],
        wait_seconds: float,
        repeatable: bool,
        lane: Lane | None,
    ) -> tuple[bytes, bool]:
        try:
            content = None if body is None else msgspec.json.encode(body)
        except UnicodeEncodeError as lone:
            raise InvalidRequestError(f"the request has text that is not UTF-8: {lone}") from None
        parameters = {name: value for name, value in query.items() if value is not None}
        timeout = httpx.Timeout(self._timeout, read=self._timeout + wait_seconds + _ANSWER_SECONDS)
        pause, repeated = _FIRST_PAUSE_SECONDS, False
        # Brokers that take requests and never answer are not asked again and again: by then each
        # of them has had the time that one answer may take.
        enough = asyncio.get_running_loop().time() + (timeout.read or 0.0)
        for left in range(_TRIES - 1, -1, -1):
            if self._http is None:
                raise ClientClosedError("the client is not connected: use `async with`, or connect")
            http = self._http if lane is None else lane.http
            url = self._urls[next(self._turns) % len(self._urls)]
            try:
                response = await http.request(
                    method,
                    url + path,
                    params=parameters,
                    content=content,
                    headers=None if self._local is None else self._local.headers(url),
                    timeout=timeout,
                    extensions=None if lane is None else lane.extensions(url),
                )
                error = error_of(response)
            except httpx.HTTPError as failure:
                error = StoreUnavailableError(
                    f"no answer from {url}: {type(failure).__name__} {failure}".rstrip()
                )
                unsent = isinstance(failure, _UNSENT)
            else:
                if error is None:
                    return response.content, repeated
                if response.status_code not in _ELSEWHERE:
                    raise error
                unsent = error.code in _REFUSED_CODES
            all_asked = _TRIES - left >= len(self._urls)
            is_late = all_asked and asyncio.get_running_loop().time() >= enough
            is_left = lane is not None and lane.is_left
            if not left or is_late or is_left or (not repeatable and not unsent):
                if not unsent:
                    error.add_note("it may have happened all the same")
                raise error
            repeated = repeated or not unsent
            if left % len(self._urls) == 0:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        raise AssertionError("the loop above returns or raises")


def _decoded(content: bytes, answer: type[T]) -> T:
    try:
        return decode(content, answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreUnavailableError(
            f"what answered is no broker of Monarq, or of another version: {error}"
        ) from None


def _pop_path(pop: Pop) -> str:
    if pop.queue is None:
        return "/api/v1/pop"
    path = f"/api/v1/pop/queue/{quoted(pop.queue)}"
    return path if pop.partition is None else f"{path}/partition/{quoted(pop.partition)}"


def _pop_query(pop: Pop) -> dict[str, Any]:
    return {
        "batch": pop.batch,
        "partitions": pop.partitions,
        "consumerGroup": pop.group,
        "consumer": pop.consumer,
        "namespace": pop.namespace,
        "task": pop.task,
        "leaseTime": pop.lease_seconds,
        "autoAck": "true" if pop.auto_ack else None,
        "subscriptionMode": pop.start if isinstance(pop.start, StartFrom) else None,
        "subscriptionFrom": None if isinstance(pop.start, StartFrom) else iso(pop.start),
    }


def _popped(answer: PopAnswer | AckedPopAnswer) -> Popped:
    return Popped(messages=[message_of(each) for each in answer.messages], lease_id=answer.lease_id)


def _ack(ack: Ack) -> dict[str, Any]:
    fields = {
        "status": ack.status,
        "transactionId": ack.transaction_id,
        "partitionId": None if ack.partition_id is None else str(ack.partition_id),
        "leaseId": ack.lease_id,
        "consumerGroup": ack.group,
        "error": ack.error,
        "retryAt": None if ack.retry_at is None else iso(ack.retry_at),
        "result": None if ack.result is None else msgspec.Raw(ack.result),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _acked(ack: Ack, answer: AckAnswer, repeated: bool) -> Outcome[Acked]:
    if not answer.success:
        error = from_code(str(answer.code), answer.error or "")
        if not (repeated and isinstance(error, AlreadyAckedError)):
            if isinstance(error, LeaseError):
                error.repeated = repeated
            return error
    return msgspec.structs.replace(_acked_of(answer), transaction_id=ack.transaction_id)


def _acked_of(answer: AckAnswer) -> Acked:
    return Acked(
        queue=answer.queue_name or "",
        partition=answer.partition_name or "",
        transaction_id=answer.transaction_id,
        lease_released=answer.lease_released,
        dead=int(answer.dlq),
        count=1 if isinstance(answer.count, msgspec.UnsetType) else answer.count,
    )
