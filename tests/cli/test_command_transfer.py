"""Commands that are exported and imported are commands again, and only admins import over HTTP."""

import json
from pathlib import Path

import pytest

from tests.cli.invoking import Invoke
from tests.server.serving import ServerProcess


def marks(server: ServerProcess, key: str, queue: str) -> list[bool]:
    """Of each item that a pop finds, whether it is a command."""
    headers = {"Authorization": f"Bearer {key}"}
    answer = server.get(f"/api/v1/pop/queue/{queue}?batch=10", headers=headers)
    messages = answer.json["messages"] if answer.status == 200 else []
    return [message.get("isCommand", False) for message in messages]


def test_over_http_an_admin_alone_imports_and_the_commands_are_commands_again(
    cli: Invoke, tmp_path: Path
) -> None:
    keys = {
        role: cli.json("api-key", "create", role, "--role", role)["key"]
        for role in ("write", "jobs", "admin")
    }
    api_keys = f"{cli.environment['XDG_DATA_HOME']}/monarq/api-keys.json"
    settings = {"store": f"sqlite:///{tmp_path}/mq.db", "auth": True, "api_keys": api_keys}
    file = str(tmp_path / "lines.jsonl")
    with ServerProcess(settings) as server:
        place = {role: ("--url", server.url, "--token", key) for role, key in keys.items()}
        cli.ok("enqueue", "true", *place["jobs"])
        cli.ok("export", "jobs", "--file", file, *place["jobs"])
        cli.ok("queue", "delete", "jobs", "--yes", *place["admin"])
        cli.ok("queue", "create", "plain", "--kind", "work", *place["write"])
        for role in ("write", "jobs"):
            refused = cli.refused("import", file, "--to", "plain", *place[role])
            assert "role admin" in refused
            # The write key is refused at the queue already, which runs commands.
            assert "role" in cli.refused("import", file, *place[role])
        assert marks(server, keys["jobs"], "plain") == []
        assert marks(server, keys["jobs"], "jobs") == []
        cli.ok("import", file, "--to", "plain", *place["admin"])
        assert marks(server, keys["write"], "plain") == [False]
        cli.ok("import", file, *place["admin"])
        assert marks(server, keys["jobs"], "jobs") == [True]


@pytest.mark.parametrize("field", ["isCommand", "commands"])
def test_no_field_of_a_line_makes_a_command(cli: Invoke, tmp_path: Path, field: str) -> None:
    cli.ok("queue", "create", "plain", "--kind", "work")
    cli.ok("push", "plain", '{"command": "true"}')
    queue, item = map(json.loads, cli.ok("export", "plain").out.splitlines())
    item[field] = True
    item["transactionId"] = "again"
    cli("import", "-", stdin=f"{json.dumps(queue)}\n{json.dumps(item)}\n")
    store = f"sqlite:///{cli.environment['XDG_DATA_HOME']}/monarq/monarq.db"
    settings = {"store": store, "data_dir": str(tmp_path)}
    with ServerProcess(settings) as server:
        assert True not in marks(server, "", "plain")
