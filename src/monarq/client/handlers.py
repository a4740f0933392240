"""What calling other people's functions takes: their threads, and the errors that they raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from monarq.errors import InvalidRequestError
from monarq.store.validation import MAX_ERROR_LENGTH

T = TypeVar("T")


async def in_thread(threads: Executor | None, function: Callable[[], T]) -> T:
    """A future cannot carry a `StopIteration`: whoever awaits it would wait for ever. It becomes a
    `RuntimeError`, as it does when it leaves a coroutine."""

    def run() -> T:
        try:
            return function()
        except StopIteration as error:
            raise RuntimeError("StopIteration was raised") from error

    return await asyncio.get_running_loop().run_in_executor(threads, run)


def raise_if_cancelled() -> None:
    """Somebody cancels the task that runs this; otherwise a `CancelledError` came from within, as
    that of a task that a function waited for does, and is an error like any other."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def error_text(error: str | BaseException) -> str:
    """As the store takes it: an error that is too long or no text must not keep a message from
    failing."""
    if isinstance(error, BaseException):
        try:
            said = str(error)
        except Exception:  # noqa: BLE001 - it is not ours
            said = ""
        error = f"{type(error).__name__}: {said}" if said else type(error).__name__
    elif not isinstance(error, str):
        raise InvalidRequestError("error must be text or an exception")
    if len(error) > MAX_ERROR_LENGTH:
        error = error[: MAX_ERROR_LENGTH - 1] + "…"
    return as_text(error)


def as_text(said: str) -> str:
    """Without what cannot be stored: NUL, and halves of surrogate pairs."""
    return said.replace("\0", "\ufffd").encode(errors="replace").decode()
