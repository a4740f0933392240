"""`monarq api-key`: keys that are told once, kept hashed, and can be taken back."""

import json
from pathlib import Path

from monarq.api_keys import read_keys, split_key
from tests.cli.conftest import Run


def test_a_key_is_printed_alone_on_stdout_and_kept_hashed(monarq: Run, home: Path) -> None:
    done = monarq("api-key", "create", "billing", "--role", "admin")
    assert done.returncode == 0, done.stderr
    [key] = done.stdout.splitlines()
    parts = split_key(key)
    assert parts is not None
    file = home / "data" / "monarq" / "api-keys.json"
    assert parts[1] not in file.read_text()
    assert parts[1] not in done.stderr
    [kept] = read_keys(file)
    assert (kept.id, kept.name, kept.role) == (parts[0], "billing", "admin")
    assert kept.matches(parts[1])


def test_keys_are_listed_and_revoked(monarq: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "keys.json")
    made = monarq("api-key", "create", "a b", "--json", "--days", "1", "--file", file)
    answer = json.loads(made.stdout)
    assert answer["expiresAt"] > answer["createdAt"]
    monarq("api-key", "create", "other", MONARQ_API_KEYS=file)
    listed = json.loads(monarq("api-key", "list", "--json", "--file", file).stdout)["keys"]
    assert [key["name"] for key in listed] == ["a b", "other"]
    assert all("hash" not in key and "salt" not in key for key in listed)
    assert "a b" in monarq("api-key", "list", MONARQ_API_KEYS=file).stdout
    assert monarq("api-key", "revoke", answer["id"], "--file", file).returncode == 0
    assert [key.name for key in read_keys(Path(file))] == ["other"]
    again = monarq("api-key", "revoke", answer["id"], "--file", file)
    assert again.returncode == 1
    assert "no key with the id" in again.stderr


def test_wrong_use_is_refused(monarq: Run, tmp_path: Path) -> None:
    assert monarq("api-key", "create", "a", "--role", "root").returncode == 2
    assert monarq("api-key", "create", "a", "--days", "-1").returncode == 2
    broken = tmp_path / "keys.json"
    broken.write_text("{")
    done = monarq("api-key", "create", "a", "--file", str(broken))
    assert done.returncode == 2
    assert "is not a file of API keys" in done.stderr
    assert broken.read_text() == "{"
    for name in ("", "x" * 256, "a\nb"):
        assert monarq("api-key", "create", name, "--file", str(tmp_path / "k")).returncode == 1
