"""`monarq config` and the flags of `monarq serve`, as a person or a script meets them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from monarq.config import FIELDS
from tests.cli.conftest import Run


def test_show_says_where_each_value_came_from(monarq: Run, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("batch_max = 5\n")
    done = monarq("config", "show", "--json", "--config", str(file), MONARQ_PORT="7000")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["file"] == str(file)
    settings = answer["settings"]
    assert list(settings) == list(FIELDS)
    assert settings["batch_max"] == {"value": 5, "source": "file", "from": str(file)}
    assert settings["port"] == {"value": 7000, "source": "variable", "from": "MONARQ_PORT"}
    assert settings["host"]["source"] == "default"


def test_show_has_a_table_for_people_with_every_setting(monarq: Run) -> None:
    done = monarq("config", "show")
    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.splitlines()[1:] if line.strip()]
    assert names == list(FIELDS)
    changed = monarq("config", "show", "--changed", MONARQ_BATCH_MAX="9").stdout.splitlines()
    assert [line.split() for line in changed[1:]] == [["batch_max", "9", "MONARQ_BATCH_MAX"]]


def test_show_says_if_nothing_was_changed(monarq: Run) -> None:
    done = monarq("config", "show", "--changed")
    assert (done.returncode, done.stdout) == (0, "")
    assert "all settings are at their defaults" in done.stderr


def test_show_hides_secrets(monarq: Run) -> None:
    secrets = {
        "MONARQ_JWT_SECRET": "hunter2" * 8,
        "MONARQ_PEER_KEY": "hunter2",
        "MONARQ_ENCRYPTION_KEYS": "ab" * 32,
        "MONARQ_STORE": "postgresql://me:hunter2@host/db",
    }
    for arguments in (("config", "show"), ("config", "show", "--json")):
        done = monarq(*arguments, **secrets)
        assert done.returncode == 0, done.stderr
        assert "hunter2" not in done.stdout + done.stderr
        assert "ababab" not in done.stdout + done.stderr
        assert "postgresql://me:***@host/db" in done.stdout


def test_wrong_settings_end_with_code_2_and_say_why_on_stderr(monarq: Run) -> None:
    for arguments in (("config", "show"), ("config", "check"), ("serve",)):
        done = monarq(*arguments, MONARQ_PORT="many", MONARQ_WORKERS="0")
        assert done.returncode == 2
        assert done.stdout == ""
        assert "port (from MONARQ_PORT): must be" in done.stderr
        assert "workers (from MONARQ_WORKERS): must be" in done.stderr
        assert "Traceback" not in done.stderr


def test_check_answers_in_json_on_stdout_alone(monarq: Run) -> None:
    good = monarq("config", "check", "--json", MONARQ_PROT="1")
    assert (good.returncode, json.loads(good.stdout)["ok"]) == (0, True)
    assert "MONARQ_PROT is ignored" in good.stderr
    bad = monarq("config", "check", "--json", MONARQ_HOST="0.0.0.0")
    assert bad.returncode == 2
    assert json.loads(bad.stdout)["errors"][0].startswith("host (from MONARQ_HOST):")


def test_help_of_serve_has_every_setting_once_with_its_meaning(monarq: Run) -> None:
    done = monarq("serve", "--help")
    assert done.returncode == 0
    text = re.sub(r"[│╭╮╰╯─\s]+", " ", done.stdout)
    for field in FIELDS.values():
        assert re.search(rf"(?<![\w-]){field.flag}(?![\w-])", text), field.flag
        assert field.description in text, field.name
        assert field.group in text


def test_a_flag_that_does_not_exist_is_refused(monarq: Run) -> None:
    done = monarq("serve", "--prot", "1")
    assert done.returncode == 2
    assert "--prot" in done.stderr


def test_a_flag_is_told_like_any_other_source(monarq: Run) -> None:
    done = monarq("serve", "--port", "x", "--store", "mysql://a")
    assert done.returncode == 2
    assert "port (from --port): must be a whole number" in done.stderr


def test_the_command_is_installed_under_its_name(environment: dict[str, str]) -> None:
    from importlib.metadata import entry_points, version

    [script] = entry_points(group="console_scripts", name="monarq")
    assert script.value == "monarq.cli.main:main"
    path = shutil.which("monarq", path=environment["PATH"])
    if path is not None:
        said = subprocess.run([path, "version"], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == version("monarq")


def test_help_needs_no_server(monarq: Run) -> None:
    done = monarq("--help", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    assert "uvloop" not in done.stderr
    assert "monarq.server" not in done.stderr
