"""Where a load goes, and its requests, made ahead where they are always the same."""

from __future__ import annotations

import ssl
from itertools import count
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from monarq.loadgen.connection import LoadConnection, compose_request, connect
from monarq.loadgen.plan import Plan

_MOST_PREPARED_BYTES = 64 << 20


class Target:
    """A broker, and how requests to it begin."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a broker, as http://127.0.0.1:6632")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._name = parts.netloc.rpartition("@")[2]
        self._headers = [("Authorization", f"Bearer {token}")] if token else []

    async def connect(self) -> LoadConnection:
        return await connect(self._host, self._port, tls=self._tls)

    def compose(self, method: str, target: str, body: bytes = b"") -> bytes:
        return compose_request(method, target, body, host=self._name, headers=self._headers)


class PushRequests:
    """One push after the other, over the partitions in turn."""

    def __init__(self, plan: Plan, target: Target, *, most: int | None = None) -> None:
        """`most` pushes, or as many as are asked for."""
        self._plan = plan
        self._target = target
        self._turn = count()
        self._most = most
        self._prepared: list[bytes] | None = None
        different = plan.partitions if not plan.spread else _rounds(plan)
        if different * (plan.size + 200) * plan.batch <= _MOST_PREPARED_BYTES:
            self._prepared = [self._made(turn, 0.0) for turn in range(different)]

    def next(self) -> bytes | None:
        turn = next(self._turn)
        if self._most is not None and turn >= self._most:
            return None
        if self._prepared is not None:
            return self._prepared[turn % len(self._prepared)]
        return self._made(turn, 0.0)

    def next_stamped(self, due: float) -> bytes:
        """With the time at which it was due in every payload."""
        return self._made(next(self._turn), due)

    def _made(self, turn: int, due: float) -> bytes:
        plan = self._plan
        name = msgspec.json.encode(plan.queue).decode()
        payload = _payload(plan.size, due)
        items = []
        for number in range(plan.batch):
            place = turn * plan.batch + number if plan.spread else turn
            items.append(
                f'{{"queue":{name},"partition":"p{place % plan.partitions}","payload":{payload}}}'
            )
        body = f'{{"items":[{",".join(items)}]}}'.encode()
        return self._target.compose("POST", "/api/v1/push", body)


class PopRequests:
    def __init__(self, plan: Plan, target: Target, group: str | None, wait_ms: int) -> None:
        parameters: dict[str, str | int] = {"batch": plan.pop_batch}
        if wait_ms:
            parameters |= {"wait": "true", "timeout": wait_ms}
        if group is not None:
            parameters["consumerGroup"] = group
        if plan.auto_ack:
            parameters["autoAck"] = "true"
        path = f"/api/v1/pop/queue/{quote(plan.queue, safe='')}?"
        self.pop = target.compose("GET", path + urlencode(parameters))
        self.asks_for_next = plan.ack_and_pop
        """Whether an ack is answered with the next messages."""
        waiting = ("wait", "timeout")
        rest = {name: value for name, value in parameters.items() if name not in waiting}
        self._ack_path = path + urlencode(rest) if plan.ack_and_pop else "/api/v1/ack/batch"
        self._target = target
        self._group = "" if group is None else f',"consumerGroup":"{group}"'
        self._around: dict[int, tuple[bytes, bytes]] = {}
        """What an ack has before and after a lease id of a length."""

    def ack(self, lease_id: str) -> bytes:
        """Of all that the lease covers."""
        before, after = self._around.get(len(lease_id)) or self._frame(lease_id)
        return before + lease_id.encode() + after

    def _frame(self, lease_id: str) -> tuple[bytes, bytes]:
        after = f'","status":"completed"{self._group}}}'
        body = f'{{"leaseId":"{lease_id}{after}'.encode()
        request = self._target.compose("POST", self._ack_path, body)
        end = len(request) - len(after.encode())
        frame = request[: end - len(lease_id)], request[end:]
        self._around[len(lease_id)] = frame
        return frame


class _Nothing(Struct):
    """A message of which only the number counts."""


class CountedPop(Struct, rename="camel"):
    messages: list[_Nothing]
    lease_id: str | None = None


class _Stamp(Struct):
    due: float


class _Stamped(Struct):
    data: _Stamp


class StampedPop(Struct, rename="camel"):
    messages: list[_Stamped]
    lease_id: str | None = None


def _payload(size: int, due: float) -> str:
    head = f'{{"due":{due:.6f},"pad":"'
    return head + "x" * max(size - len(head) - 2, 0) + '"}'


def _rounds(plan: Plan) -> int:
    """After how many pushes the partitions repeat."""
    rounds = 1
    while rounds * plan.batch % plan.partitions and rounds < plan.partitions:
        rounds += 1
    return rounds
