"""`monarq pop` and `monarq ack`: take messages out, and answer for them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer

from monarq.cli.calling import Caller, calling, say
from monarq.cli.formats import parse_duration, parse_moment, payload_value
from monarq.cli.terminal import shown, shown_json
from monarq.errors import InvalidRequestError, MonarqError
from monarq.ids import parse_message_id
from monarq.model import DEFAULT_GROUP, MAX_BATCH, Ack, Acked, AckStatus

_LONGEST_WAIT_SECONDS = 30.0


def add_to(app: typer.Typer) -> None:
    panel = "Queues and messages"
    app.command("pop", rich_help_panel=panel)(calling(pop))
    app.command("ack", rich_help_panel=panel)(calling(ack))


GroupOption = Annotated[str, typer.Option("--group", "-g", help="the consumer group")]


def pop(
    caller: Caller,
    queue: Annotated[str, typer.Argument(help="the queue")],
    group: GroupOption = DEFAULT_GROUP,
    batch: Annotated[
        int, typer.Option("--batch", "-n", min=1, max=MAX_BATCH, help="at most so many")
    ] = 1,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="only of this lane")
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", "-w", metavar="DURATION", help="how long to wait for one")
    ] = "0",
    lease: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="how long you may take (default: the queue's)"),
    ] = None,
    auto_ack: Annotated[
        bool, typer.Option("--auto-ack", help="take them as done at once; needs no ack")
    ] = False,
) -> None:
    """Take messages or items. Payloads go to stdout, one a line; what is needed to ack to stderr.

    What is not acked comes again when its lease is over.
    """
    seconds = parse_duration(wait, "--wait")
    lease_seconds = None if lease is None else parse_duration(lease, "--lease")
    with caller.client() as client:
        handle = client.queue(queue)
        if partition is not None:
            handle = handle.partition(partition)
        while True:
            step = min(seconds, _LONGEST_WAIT_SECONDS)
            found = handle.pop(
                batch, group=group, wait=step, lease=lease_seconds, auto_ack=auto_ack
            )
            seconds -= step
            if found or seconds <= 0:
                break
    messages = [_row(message) for message in found]
    value = {"queue": queue, "group": group, "lease": found.lease_id, "messages": messages}
    caller.answer(value, lambda: _print(messages, found.lease_id, group))
    if not messages:
        say(f"there is nothing in {queue}" + (" for this group" if group != DEFAULT_GROUP else ""))


def _row(message: Any) -> dict[str, Any]:
    return {
        "id": message.id,
        "partition": message.partition,
        "seq": message.seq,
        "transaction_id": message.transaction_id,
        "attempts": message.attempts,
        "created_at": message.created_at.isoformat().replace("+00:00", "Z"),
        "producer": message.producer,
        "headers": message.headers,
        "payload": payload_value(message.data),
    }


def _print(messages: list[dict[str, Any]], lease: str | None, group: str) -> None:
    for row in messages:
        say(f"{row['id']}  {row['partition']} #{row['seq']}, attempt {row['attempts']}")
        print(shown_json(msgspec.json.encode(row["payload"]).decode()))
        sys.stdout.flush()
    if lease is not None:
        whose = "" if group == DEFAULT_GROUP else f" --group {group}"
        say(f"when done: monarq ack --lease {lease}{whose}")
        if len(messages) > 1:
            say(f"or one by one: monarq ack {messages[0]['id']} --lease {lease}{whose}")


def ack(
    caller: Caller,
    messages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MESSAGE]...", help="ids, as `monarq pop` shows them"),
    ] = None,
    lease: Annotated[
        str | None, typer.Option("--lease", "-l", help="alone: all of it that has no answer yet")
    ] = None,
    group: GroupOption = DEFAULT_GROUP,
    status: Annotated[
        AckStatus, typer.Option("--status", "-s", help="what became of them")
    ] = AckStatus.COMPLETED,
    error: Annotated[str | None, typer.Option("--error", help="why, if they failed")] = None,
    retry_at: Annotated[
        str | None, typer.Option(help="failed or retry: not before +5m, or a time")
    ] = None,
) -> None:
    """Answer messages that were popped: done, failed, to be retried, given back, or dead."""
    if not messages and lease is None:
        raise InvalidRequestError("name messages, or --lease for all of a lease; pop shows both")
    at = None if retry_at is None else parse_moment(retry_at, "--retry-at").timestamp()
    common: dict[str, Any] = {
        "status": status,
        "lease_id": lease,
        "group": group,
        "error": error,
        "retry_at": None if at is None else round(at * 1_000_000),
    }
    acks = [Ack(**common)] if not messages else [_of(text, common) for text in messages]
    outcomes = caller.ask(lambda client: client.link.ack(acks))
    names = messages or [f"lease {lease}"]
    rows = [_answer(name, outcome) for name, outcome in zip(names, outcomes, strict=True)]
    caller.answer(rows, lambda: _print_answers(rows, status))
    if any(row["error"] for row in rows):
        raise typer.Exit(1)


def _of(text: str, common: dict[str, Any]) -> Ack:
    place = parse_message_id(text)
    if place is None:
        raise InvalidRequestError(
            f"{text!r} is no message id; they look like 12-345, as `monarq pop` shows them"
        )
    return Ack(partition_id=place[0], transaction_id=text, **common)


def _answer(name: str, outcome: Acked | MonarqError) -> dict[str, Any]:
    if isinstance(outcome, MonarqError):
        return {"message": name, "count": 0, "dead": 0, "error": str(outcome), "code": outcome.code}
    return {
        "message": name,
        "count": outcome.count,
        "dead": outcome.dead,
        "error": None,
        "code": None,
    }


def _print_answers(rows: list[dict[str, Any]], status: AckStatus) -> None:
    for row in rows:
        if row["error"]:
            say(f"monarq: {row['message']}: {row['error']}")
            continue
        count = f" ({row['count']:,} messages)" if row["count"] != 1 else ""
        dead = f", {row['dead']:,} now dead" if row["dead"] else ""
        print(shown(f"{row['message']}{count}: {status}{dead}"))
