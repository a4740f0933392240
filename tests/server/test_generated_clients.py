"""Clients that generators make of `openapi.json`: they compile, and run against a broker.

The generators come from npm and PyPI, in pinned versions, into a directory under `~/.cache`.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.server.serving import ServerProcess, sqlite_settings

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "generated"
BOUND = 300.0

# The generators do not run on TypeScript 7.
PACKAGES = {
    "@hey-api/openapi-ts": "0.95.0",
    "openapi-fetch": "0.17.0",
    "openapi-typescript": "7.13.0",
    "typescript": "5.9.3",
}
PYTHON_GENERATOR = "openapi-python-client==0.29.0"

TYPESCRIPT = {
    "compilerOptions": {
        "strict": True,
        "skipLibCheck": True,
        "target": "es2022",
        "lib": ["es2022", "dom", "dom.iterable"],
        "types": [],
        "module": "nodenext",
        "moduleResolution": "nodenext",
        "outDir": "built",
    }
}


def run(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def generators() -> Path:
    """The folder with `node_modules` and `python`; the first test that asks installs them."""
    if shutil.which("npm") is None:
        pytest.skip("no npm: clients in TypeScript need it; `apt-get install npm` installs it")
    pins = json.dumps([PACKAGES, PYTHON_GENERATOR, sys.version_info[:2]])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "monarq-tests"
    target = cache / f"generators-{hashlib.sha256(pins.encode()).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "generators.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = target.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            packages = json.dumps({"private": True, "dependencies": PACKAGES})
            (unfinished / "package.json").write_text(packages)
            run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], unfinished)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
            pip += ["--disable-pip-version-check", "--target", str(unfinished / "python")]
            run([*pip, PYTHON_GENERATOR], unfinished)
            unfinished.rename(target)
    return target


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_settings(tmp_path_factory.mktemp("broker"))) as server:
        yield server


@pytest.fixture
def workplace(tmp_path: Path, broker: ServerProcess) -> Path:
    """An empty folder with the description of the API."""
    (tmp_path / "openapi.json").write_bytes(broker.get("/openapi.json").body)
    return tmp_path


@pytest.mark.parametrize(
    ("client", "generate"),
    [
        ("openapi_fetch", ["openapi-typescript", "openapi.json", "--output", "schema.ts"]),
        ("hey_api", ["openapi-ts", "--file", "openapi-ts.config.mjs"]),
    ],
)
def test_a_typescript_client_compiles_and_runs(
    generators: Path, broker: ServerProcess, workplace: Path, client: str, generate: list[str]
) -> None:
    modules = generators / "node_modules"
    (workplace / "node_modules").symlink_to(modules)
    (workplace / "package.json").write_text('{"type": "module"}')
    shutil.copy(SOURCES / "openapi-ts.config.mjs", workplace)
    source = f"{client}.ts"
    (workplace / "tsconfig.json").write_text(json.dumps(TYPESCRIPT | {"files": [source]}))
    shutil.copy(SOURCES / source, workplace)
    run([modules / ".bin" / generate[0], *generate[1:]], workplace)
    run([modules / ".bin" / "tsc"], workplace)
    printed = run(["node", workplace / "built" / f"{client}.js", broker.url], workplace)
    assert json.loads(printed) == [{"n": 1}, 204]


def test_a_python_client_is_generated_and_runs(
    generators: Path, broker: ServerProcess, workplace: Path
) -> None:
    python = str(generators / "python")
    run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate"),
            *("--path", "openapi.json", "--output-path", "client"),
        ],
        workplace,
        {"PYTHONPATH": python},
    )
    printed = run(
        [sys.executable, SOURCES / "python_client.py", broker.url],
        workplace,
        {"PYTHONPATH": f"{workplace / 'client'}{os.pathsep}{python}"},
    )
    assert json.loads(printed) == [{"n": 1}, 204]
