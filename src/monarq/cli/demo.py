"""`monarq demo`: the product in one minute, in one terminal, on a store that is thrown away."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import print_json

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient
    from monarq.client.received import Received

_PAUSE_SECONDS = 1.5
_CUSTOMERS = ("ada", "bob", "cyd")
_ORDERS = 9
_BAD_ORDER = 5
_WAIT_SECONDS = 10.0


def add_to(app: typer.Typer) -> None:
    app.command("demo", rich_help_panel="Looking")(demo)


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="without pauses to read")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON, and nothing else, on stdout")
    ] = False,
) -> None:
    """See what Monarq does: queues, groups, failures, dead letters, replay and jobs.

    Runs on a store of its own in a temporary directory; nothing of yours is touched.
    """
    with tempfile.TemporaryDirectory(prefix="monarq-demo-") as directory:
        story = _Story(Path(directory), _Stage(fast=fast, quiet=as_json))
        happened = asyncio.run(story.tell())
    if as_json:
        print_json(happened)


class _Stage:
    """Says what happens, and gives people time to read it."""

    def __init__(self, *, fast: bool, quiet: bool) -> None:
        self._fast = fast or quiet
        self._quiet = quiet
        self._number = 0

    async def begin(self, what: str, why: str) -> None:
        if self._number and not self._fast:
            await asyncio.sleep(_PAUSE_SECONDS)
        self._number += 1
        if not self._quiet:
            print(f"\n{self._number}. {what}\n   {why}")

    def tell(self, text: str) -> None:
        if not self._quiet:
            print(f"     {text}", flush=True)


class _Story:
    def __init__(self, directory: Path, stage: _Stage) -> None:
        self._directory = directory
        self._stage = stage
        self._happened: dict[str, Any] = {}

    async def tell(self) -> dict[str, Any]:
        from monarq.client.async_client import AsyncClient

        async with AsyncClient(f"sqlite:///{self._directory / 'demo.db'}") as mq:
            await self._push(mq)
            await self._consume(mq)
            await self._fail(mq)
            await self._redrive(mq)
            await self._replay(mq)
            await self._jobs(mq)
        self._end()
        return self._happened

    # --- messages ----------------------------------------------------------------------------

    async def _push(self, mq: AsyncClient) -> None:
        await self._stage.begin(
            "Push orders to an ordered queue, one partition a customer",
            "Within a partition order is kept; different customers do not wait for each other.",
        )
        await mq.queue("orders").configure(retry_limit=1, retry_delay=50)
        for number in range(1, _ORDERS + 1):
            customer = _CUSTOMERS[number % len(_CUSTOMERS)]
            order = {"order": number, "customer": customer}
            await mq.queue("orders").partition(customer).push(order, transaction_id=f"o{number}")
        repeat = await mq.queue("orders").partition("bob").push({}, transaction_id="o1")
        self._stage.tell(f"{_ORDERS} orders of {len(_CUSTOMERS)} customers are stored and fsynced")
        self._stage.tell(f"order o1 pushed again: {repeat.status}, not stored twice")
        self._happened |= {"pushed": _ORDERS, "repeated": str(repeat.status)}

    async def _consume(self, mq: AsyncClient) -> None:
        await self._stage.begin(
            "Consume them with a group, `shipping`",
            "Every group has a cursor of its own and gets every message once.",
        )
        shipped = [message.payload for message in await self._drain(mq, "shipping")]
        by_customer = {
            customer: [order["order"] for order in shipped if order["customer"] == customer]
            for customer in _CUSTOMERS
        }
        for customer, orders in by_customer.items():
            self._stage.tell(f"{customer}: orders {', '.join(map(str, orders))}, in order")
        self._happened |= {"shipped": by_customer}

    async def _fail(self, mq: AsyncClient) -> None:
        await self._stage.begin(
            f"Consume them with a second group, `billing`, which cannot bill order {_BAD_ORDER}",
            "A failed message is delivered again; out of retries it becomes a dead letter.",
        )
        billed = await self._drain(mq, "billing", fails=_BAD_ORDER)
        letters = (await mq.queue("orders").dead_letters(group="billing")).rows
        self._stage.tell(f"{len(billed)} orders are billed, {len(letters)} is dead:")
        for letter in letters:
            self._stage.tell(
                f"order {letter.transaction_id} after {letter.attempts} tries: {letter.error}"
            )
        self._happened |= {"billed": len(billed), "dead": [each.error for each in letters]}

    async def _redrive(self, mq: AsyncClient) -> None:
        await self._stage.begin(
            "Mend billing, and put the dead letter back (`monarq dlq retry --all`)",
            "It comes again for the group that failed on it alone: nothing is shipped twice.",
        )
        count = await mq.queue("orders").redrive(group="billing")
        billed = await self._drain(mq, "billing")
        shipped = await self._drain(mq, "shipping")
        self._stage.tell(
            f"{count} put back, {len(billed)} billed now, {len(shipped)} shipped again"
        )
        self._happened |= {"redriven": count, "billed_later": len(billed)}

    async def _replay(self, mq: AsyncClient) -> None:
        await self._stage.begin(
            "Replay: move `shipping` back to the start (`monarq groups seek`)",
            "Messages are kept after they were consumed, as long as retention says.",
        )
        await mq.queue("orders").seek("shipping", to="start")
        again = await self._drain(mq, "shipping")
        self._stage.tell(f"{len(again)} orders consumed again")
        self._happened |= {"replayed": len(again)}

    async def _drain(
        self, mq: AsyncClient, group: str, fails: int | None = None
    ) -> list[Received[Any]]:
        """Consume until the group has nothing before it; what was acked."""
        done: list[Received[Any]] = []
        queue = mq.queue("orders")
        async with asyncio.timeout(_WAIT_SECONDS):
            while True:
                batch = await queue.pop(10, group=group, partitions=len(_CUSTOMERS), wait=0.2)
                for message in batch:
                    if fails is not None and message.payload["order"] == fails:
                        await message.fail("no card on file")
                    else:
                        await message.ack()
                        done.append(message)
                if not batch:
                    known = (await mq.admin.list_groups(queue="orders", group=group)).rows
                    if not any(row.lag for row in known):
                        return done

    # --- jobs ----------------------------------------------------------------------------------

    async def _jobs(self, mq: AsyncClient) -> None:
        import msgspec

        from monarq.job import CommandJob
        from monarq.jobs.worker import Worker
        from monarq.model import Push, PushItem

        await self._stage.begin(
            "Enqueue shell commands, and let a worker run them (`monarq enqueue`, `worker start`)",
            "A job is leased to one worker; its exit code decides, failures are tried again.",
        )
        await mq.queue("jobs").configure(kind="work", runs_commands=True, backoff_base=0)
        commands = {
            "report": ("echo 42 pages", 5),
            "urgent": ("echo first, for its priority", 9),
            "flaky": ("test -e tried || { touch tried; exit 7; }; echo done at last", 5),
            "hopeless": ("echo no such luck >&2; exit 1", 1),
        }
        items = [
            PushItem(
                "jobs",
                msgspec.json.encode(CommandJob(command=command, cwd=str(self._directory))),
                transaction_id=name,
                priority=priority,
                max_attempts=2,
            )
            for name, (command, priority) in commands.items()
        ]
        await mq.push(Push(items, commands=True))
        self._stage.tell(f"enqueued {', '.join(commands)}; a worker runs until nothing is left")
        await Worker(mq, ["jobs"], burst=True).run()
        self._happened["jobs"] = {name: await self._ended(mq, name) for name in commands}

    async def _ended(self, mq: AsyncClient, name: str) -> dict[str, Any]:
        from monarq.job import job_state, read_result

        [found] = (await mq.admin.list_items("jobs", transaction_id=name)).rows
        item = await mq.admin.get_item(found.id)
        result = read_result(item.history[-1].result) if item.history else None
        printed = "" if result is None else (result.stdout or result.stderr).strip()
        state = str(job_state(item))
        tries = f"{item.attempts} {'try' if item.attempts == 1 else 'tries'}"
        self._stage.tell(f"{name:9} {state:10} {tries:8} {printed}")
        return {"state": state, "attempts": item.attempts, "printed": printed}

    def _end(self) -> None:
        self._stage.tell("")
        for line in (
            "Now yours:",
            "  monarq enqueue 'echo hello'      a job on your own store",
            "  monarq worker start --burst      run what there is",
            "  monarq push orders '{\"n\": 1}'    a message",
            "  monarq serve                     the same over HTTP, for any client",
        ):
            self._stage.tell(line)
