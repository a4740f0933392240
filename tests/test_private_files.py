"""Files and directories for one user, whatever the umask and whatever was there before."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from monarq import Client, private_files
from monarq.api_keys import create_key
from monarq.config import Settings
from monarq.errors import StoreUnavailableError
from monarq.jobs.processes import log_file, start_detached
from monarq.places import buffer_directory


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): mode(path) for path in directory.rglob("*")}


def test_new_directories_with_their_parents_are_private(umask: None, tmp_path: Path) -> None:
    private_files.make_directory(tmp_path / "a" / "b" / "c")
    assert modes(tmp_path) == {"a": 0o700, "a/b": 0o700, "a/b/c": 0o700}


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    private_files.make_directory(tmp_path / "shared" / "own")
    assert modes(tmp_path) == {"shared": 0o755, "shared/own": 0o700}


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        private_files.make_directory(tmp_path / "file" / "below")
    with pytest.raises(FileExistsError):
        private_files.make_directory(tmp_path / "file")


def test_new_files_are_private(umask: None, tmp_path: Path) -> None:
    os.close(private_files.open_file(tmp_path / "opened", os.O_WRONLY | os.O_CREAT))
    assert private_files.create_file(tmp_path / "created")
    private_files.write_file(tmp_path / "written", b"all of it")
    assert set(modes(tmp_path).values()) == {0o600}
    assert (tmp_path / "written").read_bytes() == b"all of it"


def test_opening_a_file_that_others_may_use_corrects_it(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.write_bytes(b"kept")
    path.chmod(0o666)
    os.close(private_files.open_file(path, os.O_RDWR | os.O_CREAT))
    assert mode(path) == 0o600
    assert path.read_bytes() == b"kept"


def test_restrict_keeps_the_rights_of_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "read-only"
    path.write_bytes(b"")
    path.chmod(0o444)
    private_files.restrict(path)
    assert mode(path) == 0o400
    private_files.restrict(tmp_path / "not there")


def test_restrict_leaves_alone_what_a_symbolic_link_leads_to(tmp_path: Path) -> None:
    path = tmp_path / "open to all on purpose"
    path.write_bytes(b"")
    path.chmod(0o644)
    (tmp_path / "link").symlink_to(path)
    private_files.restrict(tmp_path / "link")
    assert mode(path) == 0o644


def test_the_files_of_another_user_are_left_alone(tmp_path: Path) -> None:
    path = Path("/etc/passwd")
    if os.geteuid() == 0:
        path = tmp_path / "theirs"
        path.write_bytes(b"")
        os.chown(path, 65534, 65534)
        path.chmod(0o644)
    private_files.restrict(path)
    os.close(private_files.open_file(path, os.O_RDONLY))
    assert mode(path) == 0o644
    assert private_files.readable_by_others(path) == "all users"


def test_write_file_replaces_the_whole_or_refuses(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old, and longer")
    path.chmod(0o644)
    with pytest.raises(FileExistsError):
        private_files.write_file(path, b"new", replace=False)
    assert path.read_bytes() == b"old, and longer"
    private_files.write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert modes(tmp_path) == {"key": 0o600}


def test_of_many_writers_that_do_not_replace_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "key"
    won: list[bytes] = []

    def write(content: bytes) -> None:
        try:
            private_files.write_file(path, content, replace=False)
        except FileExistsError:
            return
        won.append(content)

    threads = [threading.Thread(target=write, args=(b"%d" % n * 64,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [path.read_bytes()]


@pytest.mark.parametrize(
    ("bits", "readers"),
    [
        (0o600, None),
        (0o700, None),
        (0o640, "its group"),
        (0o604, "all users"),
        (0o711, "all users"),
    ],
)
def test_readable_by_others(bits: int, readers: str | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    path.chmod(bits)
    assert private_files.readable_by_others(path) == readers


# --- what uses them ------------------------------------------------------------------------------


def test_a_client_makes_its_database_for_its_user_alone(umask: None, tmp_path: Path) -> None:
    with Client(f"sqlite:///{tmp_path / 'new' / 'app.db'}") as mq:
        mq.queue("q").push({"secret": 1})
        found = modes(tmp_path)
    assert found.pop("new") == 0o700
    assert set(found) == {"new/app.db", "new/app.db-wal", "new/app.db-shm"}
    assert set(found.values()) == {0o600}


def test_a_database_of_ours_that_others_could_read_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with Client(f"sqlite:///{path}"):
        for file in tmp_path.iterdir():
            file.chmod(0o644)
        with Client(f"sqlite:///{path}"):
            found = modes(tmp_path)
    assert set(found) == {"app.db", "app.db-wal", "app.db-shm"}
    assert set(found.values()) == {0o600}


def test_a_database_behind_a_symbolic_link_is_private(umask: None, tmp_path: Path) -> None:
    real = tmp_path / "disk"
    private_files.make_directory(real)
    link = tmp_path / "app.db"
    link.symlink_to(real / "real.db")  # not there yet
    with Client(f"sqlite:///{link}") as mq:
        mq.queue("q").push({"secret": 1})
        assert modes(real) == {"real.db": 0o600, "real.db-wal": 0o600, "real.db-shm": 0o600}
        for file in real.iterdir():
            file.chmod(0o644)
        with Client(f"sqlite:///{link}"):
            assert set(modes(real).values()) == {0o600}


def test_what_another_user_put_in_the_place_of_a_wal_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(b"")
    path.chmod(0o644)
    (tmp_path / "app.db-shm").symlink_to(path)
    with pytest.raises(StoreUnavailableError), Client(f"sqlite:///{tmp_path / 'app.db'}") as mq:
        mq.queue("q").push(1)
    assert mode(path) == 0o644


def test_correcting_a_database_keeps_the_locks_on_it(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    Client(f"sqlite:///{path}").close()
    begin = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('begin immediate')"
    )
    other = [sys.executable, "-c", begin, str(path)]
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    path.chmod(0o644)
    private_files.restrict(path)
    assert not private_files.create_file(path)
    failed = subprocess.run(other, capture_output=True, text=True, check=False)
    holder.close()
    assert "database is locked" in failed.stderr
    subprocess.run(other, check=True)


def test_the_buffer_and_its_parents_are_private(umask: None, tmp_path: Path) -> None:
    buffer_directory(Settings(data_dir=str(tmp_path / "data" / "own")))
    assert set(modes(tmp_path).values()) == {0o700}


def test_the_key_file_and_its_lock_are_private(umask: None, tmp_path: Path) -> None:
    create_key(tmp_path / "keys" / "api-keys.json", name="a", role="read", now=0)
    found = modes(tmp_path)
    assert found.pop("keys") == 0o700
    assert len(found) == 2
    assert set(found.values()) == {0o600}


def test_the_log_of_a_worker_is_private(umask: None, tmp_path: Path) -> None:
    log = log_file(tmp_path / "data", "w1")
    start_detached("w1", ["--no-such-option"], log).wait()
    assert modes(tmp_path) == {
        "data": 0o700,
        "data/workers": 0o700,
        "data/workers/w1.log": 0o600,
    }
