"""A pytest plugin: on which stores a test runs, and which tests the quick tier has.

Every run leaves out what proves the same twice, unless it has `--every-store`:

- In memory, a test that also runs on SQLite in a file runs if it is marked `smoke`, with its first
  values alone: the store in memory is the SQLite store, but for its single connection, which reads
  too.
- On the oldest PostgreSQL, a test of the store that also runs on SQLite and the newest PostgreSQL
  runs if it is marked `smoke`, and any with its first values alone: the SQL is that of the newest
  one, so that only syntax and plans can differ. What is marked runs all of it.
- Of a test that runs with two versions of a published client, the old version runs on PostgreSQL
  alone. Answers on SQLite and on PostgreSQL are compared with the newest.

`--quick` asks every layer within a minute on two cores whether it still works. It leaves out

- what `NOT_QUICK` lists, but for the paths in it that the command names,
- tests that are marked `slow`, and tests that stop or kill a PostgreSQL of their own,
- all values but the first of a test with parameters, other than its store,
- the oldest PostgreSQL, and the newest one for tests that also run on SQLite, unless they are
  tests of the store that are marked `smoke`,
- either SQLite in a file or in memory where a test runs on both,
- all but the first of a folder's tests that start a broker or a command in another process.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.shared_postgres import POSTGRES_NAMES

#: Below `tests`. The quick tier does not import them.
NOT_QUICK = (
    # Faults, a browser, published clients, Spark.
    *("chaos", "dashboard", "interop", "spark"),
    # Processes, terminals and signals.
    *("cli/test_bench_command.py", "cli/test_terminal.py", "cli/test_worker_*.py"),
    "jobs/test_hung_tasks.py",
    "server/test_serving_*.py",
    # Generated clients and requests.
    *("server/test_generated_clients.py", "server/test_schemathesis.py"),
    # Both PostgreSQL servers at the same time.
    "store/test_odd_arguments.py",
    # The tests' own tools.
    *("test_kept_*.py", "test_long_first.py", "test_nothing_skipped.py"),
    *("test_postgres_server.py", "test_tiers.py"),
)
#: Fixtures that start a process for a test.
_PROCESSES = frozenset({"monarq", "server", "start_server"})
_ON_POSTGRES = frozenset({*POSTGRES_NAMES, "postgres", "broker on postgres"})
_OLDEST = frozenset(POSTGRES_NAMES[:-1])


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "which part of Monarq's tests runs")
    group.addoption("--quick", action="store_true", help="run the tests of every commit: a minute")
    group.addoption(
        "--every-store",
        action="store_true",
        help="run tests with all their parameters on every store that they have",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    tests = config.rootpath / "tests"
    if not config.getoption("quick") or not collection_path.is_relative_to(tests):
        return None
    below = collection_path.relative_to(tests)
    for path in (below, *below.parents):
        if any(fnmatch(path.as_posix(), pattern) for pattern in NOT_QUICK):
            path = tests / path
            named = [config.invocation_params.dir / name.partition("::")[0] for name in config.args]
            return not any(
                each.is_relative_to(collection_path) or collection_path.is_relative_to(each)
                for each in named
                if each.is_relative_to(path)
            )
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = items if config.getoption("every_store") else _proved_once(items)
    if config.getoption("quick"):
        kept = _quick(kept)
    if left_out := set(items).difference(kept):
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = kept


def _proved_once(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    in_file = {_function(item) for item in items if _store(item) == "sqlite"}
    on_newest = {_function(item) for item in items if _store(item) == POSTGRES_NAMES[-1]}
    on_each = in_file & on_newest
    with_newest = {
        _function(item) for item in items if _parameters(item).get("queen_mq") == "newest"
    }

    def is_proved_elsewhere(item: pytest.Item) -> bool:
        is_smoke = item.get_closest_marker("smoke") is not None
        if _store(item) == "memory":
            return not is_smoke and _function(item) in in_file
        if _tests_the_store(item) and _store(item) in _OLDEST:
            return not is_smoke and _function(item) in on_each
        is_old_client = _parameters(item).get("queen_mq") not in (None, "newest")
        return is_old_client and "sqlite" in _values(item) and _function(item) in with_newest

    def function_with_first_values(item: pytest.Item) -> tuple[str, object] | None:
        if _store(item) == "memory" and _function(item) in in_file:
            return _function(item), "memory"
        is_on_oldest = _tests_the_store(item) and _store(item) in _OLDEST
        return (_function(item), "oldest") if is_on_oldest else None

    kept = (item for item in items if not is_proved_elsewhere(item))
    return _first_of(kept, function_with_first_values)


def _quick(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    in_file = {_function(item) for item in items if "sqlite" in _values(item)}
    not_only_postgres = {_function(item) for item in items if not _is_on_postgres(item)}

    def is_quick(item: pytest.Item) -> bool:
        if item.get_closest_marker("slow") or "new_postgres_server" in _fixtures(item):
            return False
        if _is_on_postgres(item):
            is_smoke = _tests_the_store(item) and item.get_closest_marker("smoke")
            has_sql = is_smoke or _function(item) not in not_only_postgres
            return has_sql and not _values(item) & _OLDEST
        return "memory" not in _values(item) or _function(item) not in in_file

    def folder_with_processes(item: pytest.Item) -> Path | None:
        return item.path.parent if _fixtures(item) & _PROCESSES else None

    kept = filter(is_quick, items)
    kept = _first_of(kept, lambda item: (_function(item), _is_on_postgres(item)))
    return _first_of(kept, folder_with_processes)


def _first_of(
    items: Iterable[pytest.Item], key: Callable[[pytest.Item], Hashable | None]
) -> list[pytest.Item]:
    """Keep the first of the items with the same key, and all that have none."""
    seen: set[Hashable] = set()
    kept: list[pytest.Item] = []
    for item in items:
        found = key(item)
        if found is None or found not in seen:
            kept.append(item)
        seen.add(found)
    return kept


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _tests_the_store(item: pytest.Item) -> bool:
    return item.path.is_relative_to(item.config.rootpath / "tests" / "store")


def _is_on_postgres(item: pytest.Item) -> bool:
    return bool(_values(item) & _ON_POSTGRES)


def _fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


def _parameters(item: pytest.Item) -> dict[str, object]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}


def _store(item: pytest.Item) -> object:
    """What a test of every kind of store runs on: its fixture is `place`, and `mq` of clients."""
    parameters = _parameters(item)
    return parameters.get("place", parameters.get("mq"))


def _values(item: pytest.Item) -> set[str]:
    return {value for value in _parameters(item).values() if isinstance(value, str)}
