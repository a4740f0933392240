"""`monarq push`: put messages or items into a queue."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from monarq.cli.calling import Caller, calling
from monarq.cli.feeding import Progress, numbered_lines
from monarq.cli.formats import parse_moment
from monarq.errors import InvalidRequestError, MonarqError
from monarq.model import DEFAULT_PARTITION, Push, Pushed, PushItem, PushStatus

if TYPE_CHECKING:
    from monarq.client.client import Client

_AT_ONCE = 500
_LOOKS_LIKE_JSON = ("{", "[", '"')


def add_to(app: typer.Typer) -> None:
    # A negative number is a payload, and no option.
    app.command(
        "push",
        rich_help_panel="Queues and messages",
        context_settings={"ignore_unknown_options": True},
    )(calling(push))


def push(
    caller: Caller,
    queue: Annotated[str, typer.Argument(help="the queue; made if there is none")],
    payload: Annotated[
        str | None,
        typer.Argument(help="JSON, or text; left out: one a line of stdin", show_default=False),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="push one a line of this file; - is stdin")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="the lane (ordered queues)")
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option("--id", help="its transaction id: pushed again, it is not stored twice"),
    ] = None,
    priority: Annotated[int | None, typer.Option(help="higher is sooner (work queues)")] = None,
    run_at: Annotated[
        str | None,
        typer.Option(help="when, such as +5m or 2026-01-31T12:00:00Z (work queues)"),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="take payloads as text, even if they are JSON")
    ] = False,
) -> None:
    """Push a payload, or one a line of a file or of stdin.

    What is JSON is pushed as that, anything else as a string. Lines are pushed in steps, each
    whole or not at all.
    """
    if payload is not None and file is not None:
        raise InvalidRequestError("give a payload or --file, not both")
    if payload is None and file is None and sys.stdin.isatty():
        raise InvalidRequestError(
            f"give a payload, such as monarq push {queue} '{{\"n\": 1}}', or --file with one a line"
        )
    common: dict[str, Any] = {
        "partition": partition or DEFAULT_PARTITION,
        "priority": priority,
        "run_at": _micros(run_at),
    }
    with caller.client() as client:
        if payload is not None:
            data = read_payload(payload, text)
            [pushed] = client.push(
                Push([PushItem(queue, data, transaction_id=message_id, **common)])
            )
            caller.answer(pushed_row(pushed), _said(pushed))
        elif message_id is not None:
            raise InvalidRequestError("--id is for one payload; lines of a file have none")
        else:
            _push_lines(caller, client, queue, file or "-", text, common)


def _push_lines(
    caller: Caller, client: Client, queue: str, file: str, text: bool, common: dict[str, Any]
) -> None:
    lines = numbered_lines(file)
    with Progress("pushed") as progress:
        while step := list(itertools.islice(lines, _AT_ONCE)):
            items = []
            for number, line in step:
                try:
                    items.append(PushItem(queue, read_payload(line, text), **common))
                except InvalidRequestError as error:
                    raise InvalidRequestError(
                        f"line {number}: {error} ({_so_far(progress.count, step[0][0])})"
                    ) from None
            try:
                client.push(Push(items))
            except MonarqError as error:
                error.add_note(_so_far(progress.count, step[0][0]))
                raise
            progress.add(len(items))
    caller.answer(
        {"queue": queue, "pushed": progress.count}, f"pushed {progress.count:,} to {queue}"
    )


def _so_far(count: int, line: int) -> str:
    return f"{count:,} were pushed before; line {line} and those behind it were not"


def read_payload(text: str, as_text: bool = False) -> bytes:
    """The JSON of a payload that somebody typed."""
    if as_text:
        return msgspec.json.encode(text)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text.lstrip().startswith(_LOOKS_LIKE_JSON):
            raise InvalidRequestError(
                f"the payload is not JSON: {error}; --text pushes it as it is"
            ) from None
        return msgspec.json.encode(text)
    return text.encode()


def pushed_row(pushed: Pushed) -> dict[str, Any]:
    return {
        "status": str(pushed.status),
        "queue": pushed.queue,
        "id": pushed.message_id,
        "seq": pushed.seq,
        "transaction_id": pushed.transaction_id,
    }


def _said(pushed: Pushed) -> str:
    if pushed.status is PushStatus.DUPLICATE:
        return f"{pushed.transaction_id} was in {pushed.queue} already, as {pushed.message_id}"
    if pushed.status is PushStatus.BUFFERED:
        return f"buffered: the broker will store it in {pushed.queue} when its store is back"
    return f"pushed {pushed.message_id} to {pushed.queue}"


def _micros(run_at: str | None) -> int | None:
    if run_at is None:
        return None
    return round(parse_moment(run_at, "--run-at").timestamp() * 1_000_000)
