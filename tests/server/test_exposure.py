"""`monarq serve` warns of what other users of the machine can read."""

import os
from pathlib import Path

import pytest

from monarq.api_keys import create_key
from monarq.config import Settings
from monarq.server.exposure import exposed_config, exposed_files
from monarq.settings_loading import load
from tests.server.certificates import write_certificate
from tests.server.serving import ServerProcess


def warnings(server: ServerProcess) -> list[str]:
    server.stop()
    return [entry["message"] for entry in server.log if "can be used by" in entry["message"]]


def test_each_exposed_file_gets_one_warning(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    keys = tmp_path / "keys.json"
    create_key(keys, name="a", role="admin", now=0)
    keys.chmod(0o644)
    tls_key = tmp_path / "tls.key"
    write_certificate(tmp_path / "tls.pem", tls_key)
    tls_key.chmod(0o640)
    config = tmp_path / "monarq.toml"
    config.write_text(f'jwt_secret = "{"s" * 32}"\n')
    config.chmod(0o644)
    settings = {
        "data_dir": str(data),
        "auth": True,
        "api_keys": str(keys),
        "tls_certificate": str(tmp_path / "tls.pem"),
        "tls_key": str(tls_key),
    }
    with ServerProcess(settings, arguments=["--config", str(config)]) as server:
        told = warnings(server)
    exposed = {
        "the settings file, which holds secrets,": (config, "all users", 600),
        "the data directory": (data, "all users", 700),
        "the file of API keys": (keys, "all users", 600),
        "the key of the TLS certificate": (tls_key, "its group", 600),
    }
    assert sorted(told) == sorted(
        f"{what} {path} can be used by {readers}: chmod {mode} {path}"
        for what, (path, readers, mode) in exposed.items()
    )


def test_nothing_is_said_where_nothing_is_exposed(tmp_path: Path) -> None:
    config = tmp_path / "monarq.toml"
    config.write_text('log_level = "info"\n')  # no secret in it
    config.chmod(0o644)
    database = tmp_path / "a.db"
    database.touch()
    database.chmod(0o644)  # ours: corrected
    settings = {"data_dir": str(tmp_path / "data"), "store": f"sqlite:///{database}"}
    with ServerProcess(settings, arguments=["--config", str(config)]) as server:
        assert warnings(server) == []


@pytest.mark.parametrize("line", ['store = "postgresql://me:pw@h/db"', 'peer_key = "k"'])
def test_a_settings_file_with_a_secret_is_told_of(line: str, tmp_path: Path) -> None:
    config = tmp_path / "monarq.toml"
    config.write_text(line + "\n")
    config.chmod(0o640)
    [warning] = exposed_config(load(environ={}, file=str(config)))
    assert "its group" in warning
    config.chmod(0o600)
    assert list(exposed_config(load(environ={}, file=str(config)))) == []


def test_a_private_database_of_another_user_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "theirs.db"
    database.touch(mode=0o600)
    owner = os.geteuid() or 65534
    if os.geteuid() == 0:
        os.chown(database, owner, owner)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    settings = Settings(data_dir=str(tmp_path / "data"), store=f"sqlite:///{database}")
    [warning] = [warning for warning in exposed_files(settings) if "the database" in warning]
    assert f"the database {database} can be used by its owner, user {owner}" in warning


def test_the_files_beside_a_linked_database_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link, database = tmp_path / "a.db", tmp_path / "disk" / "real.db"
    link.symlink_to(database)
    database.touch(mode=0o600)
    Path(f"{database}-wal").touch()
    Path(f"{database}-wal").chmod(0o644)
    settings = Settings(data_dir=str(tmp_path / "data"), store=f"sqlite:///{link}")
    [warning] = exposed_files(settings)
    assert f"the database {database}-wal can be used by all users" in warning


def test_a_database_of_another_user_is_told_of(tmp_path: Path) -> None:
    database = Path("/etc/passwd")
    if os.geteuid() == 0:
        database = tmp_path / "theirs.db"
        database.touch()
        os.chown(database, 65534, 65534)
        database.chmod(0o644)
    settings = Settings(data_dir=str(tmp_path / "data"), store=f"sqlite:///{database}")
    [warning] = exposed_files(settings)
    assert f"the database {database} can be used by all users" in warning
