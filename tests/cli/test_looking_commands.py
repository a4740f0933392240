"""`monarq top`, `doctor` and `demo`."""

import json
import sqlite3
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.invoking import Invoke
from tests.server.serving import ServerProcess


def levels(answer: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in answer["findings"]}


def test_top_shows_queues_groups_and_rates(anywhere: Invoke) -> None:
    anywhere.ok("push", "orders", stdin="1\n2\n3\n")
    anywhere.ok("pop", "orders", "-g", "billing", "--auto-ack")
    seen = anywhere.json("top", "--once", "--interval", "0.1")
    [row] = seen["queues"]
    assert (row["queue"], row["pending"], row["slowest_group"]) == ("orders", 2, "billing")
    assert row["lag_seconds"] > 0
    assert row["pushed_per_second"] == 0
    assert "orders" in anywhere.ok("top", "--once", "--interval", "0.1").out
    assert "--once" in anywhere.refused("top")


def test_the_doctor_finds_nothing_wrong_where_nothing_is(anywhere: Invoke) -> None:
    anywhere.ok("push", "orders", "1")
    answer = anywhere.json("doctor")
    assert answer["ok"] is True
    found = levels(answer)
    assert {"settings", "store", "clock", "workers", "buffer"} <= set(found)
    assert set(found.values()) == {"ok"}, answer


def test_the_doctor_says_what_to_do_about_permissions_and_set_aside_files(cli: Invoke) -> None:
    cli.ok("push", "orders", "1")
    cli.ok("api-key", "create", "me")
    data = Path(cli.environment["XDG_DATA_HOME"]) / "monarq"
    aside = data / "buffer" / "set-aside"
    data.chmod(0o777)
    (data / "api-keys.json").chmod(0o644)
    answer = cli("doctor", "--json")
    assert answer.code == 1
    found = levels(answer.json)
    assert (found["data directory"], found["key file"]) == ("problem", "warning")
    said = cli("doctor").out
    assert f"chmod 700 {data}" in said
    assert f"chmod 600 {data / 'api-keys.json'}" in said
    data.chmod(0o700)
    assert cli("doctor").code == 0, "a warning is no problem"
    assert not aside.exists()


def test_the_doctor_warns_of_tokens_that_are_good_for_other_services(cli: Invoke) -> None:
    assert "tokens" not in levels(cli("doctor", "--json").json)
    cli.environment |= {"MONARQ_AUTH": "true", "MONARQ_JWT_SECRET": "x" * 32}
    said = cli("doctor")
    assert "`iss` and `aud` of tokens are not checked" in said.out
    assert "jwt_audience" in said.out
    cli.environment |= {"MONARQ_JWT_ISSUER": "me", "MONARQ_JWT_AUDIENCE": "monarq"}
    assert levels(cli("doctor", "--json").json)["tokens"] == "ok"


def test_the_doctor_finds_a_store_that_is_newer_older_broken_or_gone(
    cli: Invoke, tmp_path: Path
) -> None:
    newer, older, broken = (tmp_path / f"{name}.db" for name in ("newer", "older", "broken"))
    for path, version in ((newer, 999), (older, 16)):
        cli.ok("push", "q", "1", "--store", f"sqlite:///{path}")
        db = sqlite3.connect(path)
        db.execute(f"pragma user_version = {version}")
        db.close()
    broken.write_bytes(b"this is no database" * 100)
    for address in (
        f"sqlite:///{newer}",
        f"sqlite:///{older}",
        f"sqlite:///{broken}",
        "postgresql://nobody@127.0.0.1:1/none",
    ):
        answer = cli("doctor", "--json", "--store", address)
        assert answer.code == 1, answer
        bad = [each for each in answer.json["findings"] if each["level"] == "problem"]
        assert bad
        assert all(each["todo"] for each in bad)
    assert "Traceback" not in cli("doctor", "--store", f"sqlite:///{broken}").err
    assert "monarq export" in cli("doctor", "--store", f"sqlite:///{older}").out


def test_the_doctor_finds_wrong_settings_and_a_broker_that_is_not_there(cli: Invoke) -> None:
    answer = cli("doctor", "--json", MONARQ_PORT="many")
    assert (answer.code, levels(answer.json)["settings"]) == (1, "problem")
    answer = cli("doctor", "--json", MONARQ_PROT="1")
    assert answer.code == 0
    assert any(each["level"] == "warning" for each in answer.json["findings"])
    answer = cli("doctor", "--json", "--url", "http://127.0.0.1:1")
    assert (answer.code, levels(answer.json)["broker"]) == (1, "problem")
    assert "monarq serve" in cli("doctor", "--url", "http://127.0.0.1:1").out


def test_the_doctor_says_that_a_broker_is_in_maintenance(
    cli: Invoke, server: ServerProcess
) -> None:
    server.post("/api/v1/system/maintenance/pop", {"enabled": True})
    found = levels(cli.json("doctor", "--url", server.url))
    assert found["maintenance"] == "warning"


def test_the_demo_shows_what_it_says_and_leaves_nothing_behind(
    monarq: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = monarq("demo", "--fast", TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert "order o5 after 2 tries: no card on file" in done.stdout
    assert "flaky     completed  2 tries" in done.stdout
    assert list(scratch.iterdir()) == []
    assert not (Path(environment["XDG_DATA_HOME"]) / "monarq").exists()

    story = json.loads(monarq("demo", "--json").stdout)
    assert story["shipped"] == {"ada": [3, 6, 9], "bob": [1, 4, 7], "cyd": [2, 5, 8]}
    assert (story["billed"], story["dead"], story["redriven"]) == (8, ["no card on file"], 1)
    assert (story["billed_later"], story["replayed"]) == (1, 9)
    states = {name: job["state"] for name, job in story["jobs"].items()}
    assert states == {
        "report": "completed",
        "urgent": "completed",
        "flaky": "completed",
        "hopeless": "dead",
    }
