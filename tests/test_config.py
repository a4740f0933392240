"""The settings: which source wins, what is told of each mistake, and what is never shown."""

import ast
import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import monarq
from monarq.config import FIELDS, GROUPS, SECRETS, Settings
from monarq.errors import MonarqError, SettingsError
from monarq.places import buffer_directory, data_directory, store_address, without_password
from monarq.settings_checks import contradictions
from monarq.settings_loading import load, shown
from monarq.store import open_store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


@pytest.fixture(autouse=True)
def no_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def mistakes(*args: object, **kwargs: object) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        load(*args, **kwargs)  # type: ignore[arg-type]
    return str(raised.value).splitlines()


# --- which source wins -------------------------------------------------------------


def test_flags_win_over_variables_and_these_over_the_file_and_it_over_defaults(file: Path) -> None:
    file.write_text("port = 1\nbatch_max = 1\nhost = 'localhost'\n")
    environ = {"MONARQ_PORT": "2", "MONARQ_BATCH_MAX": "2"}
    loaded = load({"port": "3"}, environ=environ, file=str(file))
    assert loaded.settings.port == 3
    assert loaded.settings.batch_max == 2
    assert loaded.settings.host == "localhost"
    assert loaded.settings.batch_wait_ms == Settings().batch_wait_ms
    said = {name: str(loaded.sources[name]) for name in ("port", "batch_max", "host", "workers")}
    assert said == {
        "port": "--port",
        "batch_max": "MONARQ_BATCH_MAX",
        "host": str(file),
        "workers": "default",
    }


def test_a_flag_that_was_not_given_hides_nothing() -> None:
    loaded = load(dict.fromkeys(FIELDS), environ={"MONARQ_BATCH_MAX": "7"})
    assert loaded.settings.batch_max == 7


def test_a_flag_can_set_a_value_back_to_its_default(file: Path) -> None:
    file.write_text("auth = true\njwt_secret = '" + "x" * 32 + "'\njwt_issuer = 'a'\n")
    loaded = load({"auth": False, "jwt_issuer": ""}, environ={}, file=str(file))
    assert loaded.settings.auth is False
    assert loaded.settings.jwt_issuer == ""


def test_an_empty_variable_is_as_good_as_none(file: Path) -> None:
    file.write_text("port = 7\n")
    assert load(environ={"MONARQ_PORT": ""}, file=str(file)).settings.port == 7


def test_the_file_is_found_by_variable_and_in_the_users_directory(tmp_path: Path) -> None:
    own = tmp_path / "config" / "monarq" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("port = 11\n")
    assert load(environ={}).settings.port == 11
    other = tmp_path / "other.toml"
    other.write_text("port = 12\n")
    assert load(environ={"MONARQ_CONFIG": str(other)}).settings.port == 12
    third = tmp_path / "third.toml"
    third.write_text("port = 13\n")
    loaded = load(environ={"MONARQ_CONFIG": str(other)}, file=str(third))
    assert (loaded.settings.port, loaded.file) == (13, third)


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_can_come_from_a_flag_a_variable_and_the_file(name: str, file: Path) -> None:
    field = FIELDS[name]
    sample: dict[str, object] = {"int": 2, "float": 2.5, "bool": not field.default}
    value = sample.get(field.kind, "x")
    if field.choices:
        value = field.choices[-1]
    if field.is_list:
        value = ["a", "b"]
    text = ",".join(value) if isinstance(value, list) else str(value)
    file.write_text(f"{name} = {json.dumps(value)}\n")
    from_file = load(environ={}, file=str(file), check=False)
    from_variable = load(environ={field.variable: text}, check=False)
    from_flag = load({name: value if field.kind == "bool" else text}, environ={}, check=False)
    for loaded in (from_file, from_variable, from_flag):
        assert getattr(loaded.settings, name) == value


# --- mistakes ----------------------------------------------------------------------


def test_a_mistake_names_the_setting_its_source_and_what_is_allowed() -> None:
    assert mistakes(environ={"MONARQ_PORT": "70000"}) == [
        "port (from MONARQ_PORT): must be a whole number at least 0 and at most 65535, not '70000'"
    ]
    assert mistakes({"log_level": "loud"}, environ={}) == [
        "log_level (from --log-level): must be one of debug, info, warning, error, not 'loud'"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "http"),
        ("port", "1.5"),
        ("batch_max", "0"),
        ("batch_wait_ms", "nan"),
        ("batch_wait_ms", "inf"),
        ("drain_seconds", "-1"),
        ("auth", "maybe"),
        ("workers", "1e3"),
    ],
)
def test_what_cannot_be_read_is_refused_and_never_guessed(name: str, text: str) -> None:
    [mistake] = mistakes(environ={FIELDS[name].variable: text})
    assert mistake.startswith(f"{name} (from {FIELDS[name].variable}): must be")


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", "'80'"), ("auth", "'true'"), ("auth", "1"), ("peers", "'a:1'"), ("peers", "[1]")],
)
def test_a_value_of_the_wrong_type_in_the_file_is_refused(
    name: str, value: str, file: Path
) -> None:
    file.write_text(f"{name} = {value}\n")
    [mistake] = mistakes(environ={}, file=str(file))
    assert mistake.startswith(f"{name} (from {file}): must be")


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    file.write_text("prot = 1\nbatch_max = 'many'\n")
    told = mistakes({"workers": "0"}, environ={"MONARQ_PORT": "x"}, file=str(file))
    assert len(told) == 4


def test_an_unknown_name_in_the_file_is_an_error_with_the_nearest_name(file: Path) -> None:
    file.write_text("batchmax = 5\n[server]\nport = 1\n")
    told = mistakes(environ={}, file=str(file))
    assert told[0] == f"batchmax (in {file}): there is no such setting; did you mean batch_max?"
    assert "server" in told[1]
    assert "no such table" in told[1]


def test_an_unknown_variable_is_a_warning_with_the_nearest_name() -> None:
    others = ("MONARQ_TEST_POSTGRES", "MONARQ_VENV", "MONARQ_URL", "MONARQ_TOKEN")
    loaded = load(environ={"MONARQ_PROT": "1", **dict.fromkeys(others, "x")})
    assert loaded.warnings == [
        "MONARQ_PROT is ignored: there is no such setting; did you mean MONARQ_PORT?"
    ]


def test_a_file_that_is_named_must_be_there_and_be_toml(file: Path) -> None:
    assert "there is no file" in mistakes(environ={"MONARQ_CONFIG": str(file)})[0]
    file.write_text("port = = 1")
    assert "is not valid TOML" in mistakes(environ={}, file=str(file))[0]
    file.write_bytes(b"host = '\xff'")
    assert "is not valid TOML" in mistakes(environ={}, file=str(file))[0]


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"workers": 2}, "workers"),
        ({"store": "mysql://x"}, "store"),
        ({"store": "sqlite:"}, "store"),
        ({"tls_certificate": "cert.pem"}, "tls_key"),
        ({"tls_certificate": "/nowhere/c", "tls_key": "/nowhere/k"}, "tls_certificate"),
        ({"host": "0.0.0.0"}, "host"),
        ({"host": "::"}, "host"),
        ({"host": "example.org"}, "host"),
        ({"auth": True}, "auth"),
        ({"jwt_secret": "short"}, "jwt_secret"),
        ({"jwt_algorithms": "none", "jwt_secret": "x" * 32}, "jwt_algorithms"),
        ({"jwt_algorithms": "HS256", "jwt_jwks": "https://x/k"}, "jwt_algorithms"),
        ({"jwt_jwks": "http://example.org/keys"}, "jwt_jwks"),
        ({"jwt_jwks": "/nowhere/keys.json"}, "jwt_jwks"),
        ({"encryption_keys": "abcd"}, "encryption_keys"),
        ({"peers": "somewhere"}, "peers"),
        ({"peers": "a:0"}, "peers"),
        ({"poll_min_ms": 2000}, "poll_min_ms"),
        ({"buffer_file_bytes": 2**39}, "buffer_file_bytes"),
        ({"schema": "a b"}, "schema"),
    ],
)
def test_settings_that_cannot_go_together_are_refused(flags: dict[str, object], name: str) -> None:
    assert any(line.startswith(f"{name} (from ") for line in mistakes(flags, environ={}))


@pytest.mark.parametrize(
    "flags",
    [
        {"host": "0.0.0.0", "insecure": True},
        {"host": "0.0.0.0", "auth": True, "jwt_secret": "x" * 32},
        {"host": "::1"},
        {"host": "127.8.8.8"},
        {"host": "localhost"},
        {"store": "postgresql://localhost/x", "workers": 4},
        {"store": "memory:"},
        {"jwt_jwks": "http://127.0.0.1:9/keys", "auth": True},
        {"peers": "a:1,[::1]:2"},
    ],
)
def test_settings_that_can_go_together_are_taken(flags: dict[str, object]) -> None:
    load(flags, environ={})


# --- secrets -----------------------------------------------------------------------


def test_no_mistake_shows_a_secret(file: Path) -> None:
    file.write_text(
        "encryption_keys = 'hunter2'\njwt_secret = ['hunter2']\npeer_key = {a = 'hunter2'}"
    )
    told = mistakes(environ={}, file=str(file))
    told += mistakes({"encryption_keys": "hunter2", "jwt_secret": "hunter2"}, environ={})
    assert len(told) == 5
    assert "hunter2" not in "".join(told)


def test_no_secret_is_shown() -> None:
    for name in SECRETS:
        field = FIELDS[name]
        value: object = ["hunter2", "hunter2"] if field.is_list else "hunter2"
        assert "hunter2" not in str(shown(field, value))


@pytest.mark.parametrize(
    ("address", "safe"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgres://me:hun:ter2@ho@st/db", "postgres://me:***@st/db"),
        (
            "postgresql://host/db?user=a&password=hunter2",
            "postgresql://host/db?user=a&password=***",
        ),
        ("postgresql://host/db?sslpassword=hunter2", "postgresql://host/db?sslpassword=***"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://[broken:hunter2@x/db", "postgresql://***"),
        ("postgresql://me:hun/ter2@host/db", "postgresql://***"),
        ("postgresql://me:1/hunter2@host/db", "postgresql://***"),
        ("postgresql://me:hunter#2@host/db", "postgresql://***"),
        ("postgresql://me:1#hunter2@host/db", "postgresql://***"),
        ("postgresql://me:1?hunter2@host/db", "postgresql://***"),
        ("postgresql://me:x@5?hunter2@host/db", "postgresql://***"),
        ("postgresql://me:x@y/hunter2@host/db", "postgresql://***"),
        ("postgresql://host/db?password=a&hunter2", "postgresql://host/db?password=***&***"),
        ("postgresql://me:hunter2@a:1,b:2/db?x=1", "postgresql://me:***@a:1,b:2/db?x=1"),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db"),
    ],
)
def test_a_store_is_shown_without_its_password(address: str, safe: str) -> None:
    assert without_password(address) == safe


# --- where the data is -------------------------------------------------------------


def test_data_is_in_the_users_directory_and_for_nobody_else(tmp_path: Path) -> None:
    directory = data_directory(Settings())
    assert directory == tmp_path / "data" / "monarq"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert store_address(Settings()) == f"sqlite:///{directory}/monarq.db"
    assert buffer_directory(Settings()).stat().st_mode & 0o777 == 0o700


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"data_dir: cannot make .*file/below"):
        data_directory(Settings(data_dir=str(tmp_path / "file" / "below")))


# --- the struct itself -------------------------------------------------------------


def test_every_setting_has_a_description_and_a_group() -> None:
    assert list(FIELDS) == list(Settings.__struct_fields__)
    assert set(GROUPS) <= set(FIELDS)
    for field in FIELDS.values():
        assert field.description
        assert "[" not in field.description  # the command line takes it for markup
        assert field.group
        assert field.kind in ("int", "float", "bool", "str", "list")


def test_the_defaults_are_within_their_own_bounds() -> None:
    msgspec.convert(msgspec.to_builtins(Settings()), Settings)
    load(environ={})


def test_choices_are_all_that_their_pattern_matches() -> None:
    for field in FIELDS.values():
        patterns = [meta.pattern for meta in getattr(field.type, "__metadata__", ())]
        for pattern in filter(None, patterns):
            assert field.choices
            assert all(re.search(pattern, choice) for choice in field.choices)


def test_settings_need_no_server_to_be_loaded() -> None:
    code = "import sys, monarq.settings_loading; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    for module in ("uvloop", "asyncpg", "typer", "monarq.server", "monarq.store"):
        assert module not in loaded


def test_every_setting_is_used_by_something() -> None:
    """One that is accepted, checked and then forgotten is worse than none."""
    source = Path(monarq.__file__).parent
    read: set[str] = set()
    for path in source.rglob("*.py"):
        if path.name not in ("config.py", "settings_checks.py", "settings_loading.py"):
            tree = ast.parse(path.read_text())
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert set(FIELDS) <= read, f"nobody reads {sorted(set(FIELDS) - read)}"


@pytest.mark.parametrize("password", ["hun/ter#2", "1?hunter2", "x#hunter2"])
def test_no_part_of_a_password_is_in_an_error(password: str) -> None:
    address = f"postgresql://me:{password}@localhost:1/db"
    with pytest.raises(MonarqError) as raised:
        asyncio.run(open_store(address))
    assert "hun" not in str(raised.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "broker.example.org"])
def test_notices_from_other_machines_need_a_key(host: str) -> None:
    for listening in ({"peer_port": 6633}, {"peers": ["other:6633"]}):
        settings = Settings(peer_host=host, **listening)  # type: ignore[arg-type]
        [(name, problem)] = contradictions(settings)
        assert (name, host in problem) == ("peer_key", True)
        assert not list(contradictions(msgspec.structs.replace(settings, peer_key="k")))
        assert not list(contradictions(msgspec.structs.replace(settings, peer_host="127.0.0.1")))
    # Nobody listens for notices.
    assert not list(contradictions(Settings(peer_host=host)))
