"""The import-direction check catches what it should, and the code passes it."""

from pathlib import Path

import pytest

from tests.architecture import find_violations


def plant(source: Path, path: str, code: str) -> None:
    module = source / "monarq" / path
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(code)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A package that has every layer, each of them empty."""
    for path in (
        "__init__.py",
        "__main__.py",
        "clock.py",
        "errors.py",
        "store/__init__.py",
        "store/sqlite/__init__.py",
        "broker/__init__.py",
        "server/__init__.py",
        "client/__init__.py",
        "jobs/__init__.py",
        "spark/__init__.py",
        "testing.py",
        "cli/__init__.py",
    ):
        plant(tmp_path, path, "")
    return tmp_path


@pytest.mark.slow
def test_the_code_imports_downward_only() -> None:
    assert find_violations() == []


@pytest.mark.parametrize(
    ("path", "code", "imported"),
    [
        ("clock.py", "import monarq.store", "store"),
        ("errors.py", "from monarq import store", "store"),
        ("errors.py", "from monarq import Client", "monarq"),
        ("store/opening.py", "from monarq.broker import Broker", "broker"),
        ("store/opening.py", "from ..broker import Broker", "broker"),
        ("store/opening.py", "from .. import broker", "broker"),
        ("store/sqlite/__init__.py", "from ...broker import Broker", "broker"),
        ("store/__init__.py", "def f():\n    import monarq.client.http", "client"),
        ("store/opening.py", "import importlib\nimportlib.import_module('monarq.cli')", "cli"),
        ("broker/loop.py", "from monarq.server.app import App", "server"),
        ("broker/loop.py", "if TYPE_CHECKING:\n    from monarq.client import Client", "client"),
        ("client/http.py", "from monarq.server import App", "server"),
        ("jobs/worker.py", "from monarq.server import app", "server"),
        ("spark/source.py", "from monarq.broker import Broker", "broker"),
        ("server/app.py", "from monarq.cli import main", "cli"),
        ("testing.py", "from monarq.server import App", "server"),
        ("__init__.py", "from monarq.server import App", "server"),
    ],
)
def test_an_upward_import_is_caught(source: Path, path: str, code: str, imported: str) -> None:
    plant(source, path, code)
    [violation] = find_violations(source)
    assert violation.path == source / "monarq" / path
    assert violation.imported == imported
    assert violation.line == len(code.splitlines())


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("clock.py", "from monarq.errors import MonarqError\nfrom . import errors"),
        ("store/opening.py", "from monarq.model import Queue\nfrom monarq.store.sqlite import x"),
        ("broker/loop.py", "from monarq.store import open_store\nfrom ..model import Queue"),
        ("server/app.py", "from monarq.broker import Broker"),
        ("client/embedded.py", "from monarq.broker import Broker"),
        ("jobs/worker.py", "from monarq.client import Client"),
        ("spark/source.py", "from monarq.client import Client\nimport monarq.store"),
        ("cli/serve.py", "from monarq.server import App\nfrom monarq import Client"),
        ("__main__.py", "from monarq.cli import main"),
        ("__init__.py", "from monarq.client import Client"),
        ("store/opening.py", "import monarque\nfrom sqlite3 import connect"),
    ],
)
def test_a_downward_import_is_allowed(source: Path, path: str, code: str) -> None:
    plant(source, path, code)
    assert find_violations(source) == []
