"""Every command has --json, and with it prints JSON and nothing else on stdout."""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from monarq.broker.failover import store_name
from monarq.broker.push_buffer import PushBuffer
from monarq.cli.main import make_app
from monarq.cli.reference import commands
from monarq.config import Settings
from monarq.errors import QueueFullError
from tests.broker.buffering import push_of
from tests.cli.invoking import Invoke

Prepare = Callable[[Invoke, Path], Mapping[str, str]]


def nothing(_: Invoke, __: Path) -> Mapping[str, str]:
    return {}


def a_queue(cli: Invoke, _: Path) -> Mapping[str, str]:
    cli.ok("push", "orders", "1")
    return {}


def a_lease(cli: Invoke, path: Path) -> Mapping[str, str]:
    a_queue(cli, path)
    return {"LEASE": cli.json("pop", "orders", "--group", "g")["lease"]}


def a_job(cli: Invoke, _: Path) -> Mapping[str, str]:
    cli.ok("enqueue", "echo hi", "--id", "j")
    return {}


def a_dead_letter(cli: Invoke, path: Path) -> Mapping[str, str]:
    lease = a_lease(cli, path)["LEASE"]
    cli.ok("ack", "--lease", lease, "-g", "g", "--status", "dead")
    return {}


def an_export(cli: Invoke, path: Path) -> Mapping[str, str]:
    a_queue(cli, path)
    cli.ok("export", "--file", str(path / "lines"))
    return {"FILE": str(path / "lines")}


def a_worker_log(cli: Invoke, _: Path) -> Mapping[str, str]:
    log = Path(cli.environment["XDG_DATA_HOME"]) / "monarq" / "workers" / "w1.log"
    log.parent.mkdir(parents=True)
    log.write_text("a line\n")
    return {}


def a_key(cli: Invoke, _: Path) -> Mapping[str, str]:
    return {"KEY": cli.json("api-key", "create", "me")["id"]}


def set_aside(cli: Invoke, _: Path) -> Mapping[str, str]:
    directory = Path(cli.environment["XDG_DATA_HOME"]) / "monarq" / "buffer"

    async def spoil() -> None:
        name = store_name(Settings(store=f"sqlite:///{directory.parent}/monarq.db"))
        buffer = await PushBuffer.open(directory, store=name, cipher=None)
        await buffer.append("m", [push_of("good")])
        [record] = await buffer.peek()
        await buffer.set_aside([(record, 0, QueueFullError("full"))])
        await buffer.done([record])
        await buffer.close()

    asyncio.run(spoil())
    return {"ASIDE": cli.json("buffer", "list")["files"][0]["name"]}


def an_encryption_key(cli: Invoke, path: Path) -> Mapping[str, str]:
    cli.environment["MONARQ_ENCRYPTION_KEYS"] = "00" * 32
    return a_queue(cli, path)


#: How each command is called, and what must be there before.
CALLS: dict[str, tuple[Prepare, str]] = {
    "ack": (a_lease, "--lease LEASE --group g"),
    "api-key create": (nothing, "me"),
    "api-key list": (a_key, ""),
    "bench": (nothing, "push --duration 0.3 --warm-up 0 --concurrency 2"),
    "buffer list": (set_aside, ""),
    "cancel": (a_job, "j"),
    "clear": (a_job, "--yes"),
    "config check": (nothing, ""),
    "config get": (nothing, "timeout"),
    "config list": (nothing, ""),
    "config reference": (nothing, ""),
    "config set": (nothing, "max-retries 5"),
    "config show": (nothing, ""),
    "config unset": (nothing, "max-retries"),
    "demo": (nothing, "--fast"),
    "dlq list": (a_dead_letter, ""),
    "dlq purge": (a_dead_letter, "--all --yes"),
    "dlq retry": (a_dead_letter, "--all"),
    "dlq show": (a_dead_letter, "1"),
    "doctor": (nothing, ""),
    "enqueue": (nothing, "true"),
    "export": (a_queue, ""),
    "groups delete": (a_lease, "g --yes"),
    "groups list": (a_lease, ""),
    "groups seek": (a_lease, "g orders --to start"),
    "import": (an_export, "FILE"),
    "list": (a_job, ""),
    "logs": (a_job, "j"),
    "pipeline runs": (a_queue, ""),
    "pop": (a_queue, "orders"),
    "push": (nothing, "orders 1"),
    "queue clear": (a_queue, "orders --yes"),
    "queue create": (nothing, "orders"),
    "queue delete": (a_queue, "orders --yes"),
    "queue list": (a_queue, ""),
    "queue pause": (a_queue, "orders"),
    "queue resume": (a_queue, "orders"),
    "queue set": (a_queue, "orders --lease-time 5"),
    "queue show": (a_queue, "orders"),
    "rekey": (an_encryption_key, ""),
    "retry": (a_job, "j"),
    "show": (a_job, "j"),
    "status": (a_job, ""),
    "tail": (a_queue, "orders"),
    "top": (a_queue, "--once --interval 0.1"),
    "version": (nothing, ""),
    "worker list": (nothing, "--all"),
    "worker logs": (a_worker_log, "w1"),
    "worker stop": (nothing, "--all"),
}
#: Those that answer with lines of JSON.
LINES = {"export"}
#: What has no --json, and why.
WITHOUT = {
    "serve": "answers nothing; its log is JSON with --log-format json",
    "buffer show": "prints lines of JSON anyway",
    "buffer requeue": "says on stderr what it did, and answers by its exit code",
    "api-key revoke": "says on stderr what it did, and answers by its exit code",
}
#: Tried with real processes: workers in test_worker_command.py, pipelines in tests/spark.
ELSEWHERE = {
    "worker start",
    "pipeline analyse",
    "pipeline archive",
    "pipeline compact",
    "pipeline replay",
    "pipeline run",
}


def options_of(command: Any) -> set[str]:
    return set(inspect.signature(command.callback, eval_str=True).parameters)


def test_no_command_is_forgotten() -> None:
    known = dict(commands(make_app()))
    assert set(known) == {*CALLS, *WITHOUT, *ELSEWHERE}
    without = {name for name, command in known.items() if "as_json" not in options_of(command)}
    assert without == set(WITHOUT)


@pytest.mark.parametrize("command", CALLS)
def test_the_answer_is_json_and_nothing_else(cli: Invoke, tmp_path: Path, command: str) -> None:
    prepare, arguments = CALLS[command]
    names = prepare(cli, tmp_path)
    words = [names.get(word, word) for word in arguments.split()]
    answer = cli.ok(*command.split(), *words, "--json")
    lines = answer.out.splitlines() if command in LINES else [answer.out]
    assert lines
    for line in lines:
        assert json.loads(line) is not None


def test_what_prints_lines_of_json_anyway_does(cli: Invoke, tmp_path: Path) -> None:
    name = set_aside(cli, tmp_path)["ASIDE"]
    for line in cli.ok("buffer", "show", name).out.splitlines():
        assert json.loads(line)["items"]
