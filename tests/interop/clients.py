"""The client `queen-mq` as it is published, in two versions at once.

Each is installed by pip into a directory of its own. Inside it imports itself by relative names
only, so both can be loaded into one process, unmodified, under names of their own.
"""

import contextlib
import fcntl
import importlib.util
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

#: What pip is asked for, by the name that the tests give it.
REQUIREMENTS = {"0.15.0": "queen-mq==0.15.0", "newest": "queen-mq"}
VERSIONS = tuple(REQUIREMENTS)
OLD, NEWEST = VERSIONS

INSTALL_TIMEOUT_SECONDS = 300


def load_client(version: str, run_directory: Path) -> ModuleType:
    """The package `queen` of that version; the first of the run's processes to ask installs it."""
    alias = "queen_" + version.replace(".", "_")
    if alias in sys.modules:
        return sys.modules[alias]
    package = _installed(version, run_directory) / "queen"
    spec = importlib.util.spec_from_file_location(
        alias, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{REQUIREMENTS[version]} has no package `queen`")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    try:
        with signal_handlers_kept():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[alias]
        raise
    return module


def _installed(version: str, run_directory: Path) -> Path:
    target = run_directory / f"queen-mq-{version}"
    with (run_directory / f"queen-mq-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = target.with_suffix(".new")
            pip = subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input"),
                    *("--disable-pip-version-check", "--no-deps", "--target", str(unfinished)),
                    REQUIREMENTS[version],
                ],
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT_SECONDS,
                check=False,
            )
            if pip.returncode != 0:
                raise RuntimeError(f"{REQUIREMENTS[version]} was not installed:\n{pip.stderr}")
            unfinished.rename(target)
    return target


@contextlib.contextmanager
def signal_handlers_kept() -> Iterator[None]:
    """The client takes SIGINT and SIGTERM when it is made, and does not give them back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
