"""Enqueues shell commands: what a person asks for, completed by the defaults that are set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from monarq.client.client import Client
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.job import DEFAULT_QUEUE, CommandJob, Timeout
from monarq.model import MAX_PRIORITY, Push, Pushed, PushItem, QueueKind
from monarq.model.pages import all_rows
from monarq.operations.records import SETTING_KIND
from monarq.record_values import skip


class JobSettings(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Defaults for jobs that are enqueued from now on; what a job says itself wins."""

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = DEFAULT_QUEUE
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    backoff_base: Annotated[float, Meta(ge=0, le=1_000)] = 2.0
    timeout: Timeout | None = None
    """Seconds; none if it is not set."""
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 5


SETTING_NAMES = tuple(info.encode_name for info in msgspec.structs.fields(JobSettings))


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as people write it, as JSON or by flags."""

    command: Annotated[str, Meta(min_length=1, max_length=100_000)]
    id: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    queue: str | None = None
    priority: int | None = None
    timeout: Timeout | None = None
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    backoff_base: Annotated[float, Meta(ge=0, le=1_000)] | None = None
    run_at: str | None = None
    env: dict[str, str] = {}
    cwd: str | None = None


def read_request(text: str) -> JobRequest:
    """A JSON object, or a command line."""
    stripped = text.strip()
    if not stripped:
        raise InvalidRequestError("a job needs a command")
    if not stripped.startswith("{"):
        return JobRequest(command=stripped)
    try:
        return msgspec.json.decode(stripped, type=JobRequest)
    except msgspec.ValidationError as error:
        fields = ", ".join(JobRequest.__struct_fields__)
        raise InvalidRequestError(f"not a job: {error}; a job has {fields}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequestError(
            f"not a job: what begins with {{ must be JSON, and this is not ({error})"
        ) from None


# --- settings ------------------------------------------------------------------------------


def read_settings(client: Client) -> JobSettings:
    return msgspec.convert(settings_that_are_set(client), JobSettings)


def settings_that_are_set(client: Client) -> dict[str, Any]:
    """Return the values that are set, without those that are malformed."""
    found = {}
    for record in all_rows(
        lambda limit, after: client.admin.list_records(SETTING_KIND, limit=limit, after=after)
    ):
        if record.key not in SETTING_NAMES:
            continue
        try:
            value = msgspec.json.decode(record.value)
            msgspec.convert({record.key: value}, JobSettings)
        except (msgspec.MsgspecError, RecursionError) as error:
            skip(record, str(error))
        else:
            found[record.key] = value
    return found


def set_setting(client: Client, name: str, text: str) -> Any:
    """Answers the value that was set."""
    _check_name(name)
    value: Any = text
    if name != "queue":
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise InvalidRequestError(f"{name} must be a number, not {text!r}") from None
    try:
        msgspec.convert({name: value}, JobSettings)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"{name}: {str(error).partition(' - at')[0]}") from None
    client.admin.put_record(SETTING_KIND, name, msgspec.json.encode(value))
    return value


def unset_setting(client: Client, name: str) -> bool:
    _check_name(name)
    return bool(client.admin.delete_record(SETTING_KIND, name))


def _check_name(name: str) -> None:
    if name not in SETTING_NAMES:
        raise InvalidRequestError(
            f"there is no setting {name!r} of jobs; there are {', '.join(SETTING_NAMES)}"
        )


# --- enqueueing ----------------------------------------------------------------------------


def enqueue(
    client: Client,
    requests: Sequence[JobRequest],
    settings: JobSettings,
    run_at: Mapping[str, int] | None = None,
) -> list[Pushed]:
    """All of them, or none. `run_at`: the points in time that the requests' `run_at` mean."""
    items = [_item(request, settings, run_at or {}) for request in requests]
    for name in {item.queue for item in items}:
        _ensure_queue(client, name)
    return client.push(Push(items, commands=True))


def _item(request: JobRequest, settings: JobSettings, run_at: Mapping[str, int]) -> PushItem:
    def given(name: str) -> Any:
        value = getattr(request, name)
        return getattr(settings, name) if value is None else value

    job = CommandJob(
        command=request.command, env=request.env, cwd=request.cwd, timeout=given("timeout")
    )
    return PushItem(
        queue=given("queue"),
        payload=msgspec.json.encode(job),
        transaction_id=request.id,
        priority=given("priority"),
        run_at=None if request.run_at is None else run_at[request.run_at],
        max_attempts=given("max_retries") + 1,
        backoff_base=given("backoff_base"),
    )


def _ensure_queue(client: Client, name: str) -> None:
    try:
        queue = client.admin.get_queue(name)
    except NotFoundError:
        client.admin.configure(name, kind=QueueKind.WORK, options={"runs_commands": True})
        return
    if not queue.options.runs_commands:
        raise ConflictError(
            f"queue {name!r} does not run commands: use another one, which is made for it by the "
            "first job"
        )
