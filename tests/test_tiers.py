"""The quick tier and the oldest PostgreSQL run the tests that they should."""

import re

import pytest

from tests.planted_tests import run_planted

pytest_plugins = ["pytester"]

STORE = """
import pytest

on_each = pytest.mark.parametrize(
    "place", ["memory", "sqlite", "postgres-oldest", "postgres-newest"]
)

@on_each
def test_plain(place): pass

@pytest.mark.parametrize("place", ["postgres-oldest", "postgres-newest"])
def test_locks(place): pass

@pytest.mark.smoke
@on_each
def test_smoke(place): pass

@pytest.mark.smoke
@pytest.mark.parametrize("number", [1, 2])
@on_each
def test_numbers(place, number): pass

@pytest.mark.slow
@on_each
def test_slow(place): pass

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("server", ["postgres-oldest", "postgres-newest"])
def test_plans(server, number): pass
"""
SERVER = """
import pytest

@pytest.fixture
def new_postgres_server(): pass

@pytest.fixture
def start_server(): pass

@pytest.mark.parametrize("api", ["memory", "postgres-newest"])
def test_both(api): pass

@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_file(store): pass

@pytest.mark.parametrize("api", ["postgres-newest"])
def test_sql(api): pass

def test_killed(new_postgres_server): pass

def test_app(): pass

def test_one_process(start_server): pass

def test_another_process(start_server): pass
"""
INTEROP = """
import pytest

@pytest.mark.parametrize("server", ["sqlite", "postgres-newest"])
@pytest.mark.parametrize("queen_mq", ["0.15.0", "newest"])
def test_client(server, queen_mq): pass

@pytest.mark.parametrize("server", ["sqlite", "postgres-newest"])
@pytest.mark.parametrize("queen_mq", ["0.15.0"])
def test_old_client(server, queen_mq): pass
"""
MODULES = {
    "tests/store/test_store": STORE,
    "tests/server/test_server": SERVER,
    "tests/interop/test_interop": INTEROP,
    "tests/server/test_serving_tls": "def test_tls(): pass",
    "tests/spark/test_spark": "def test_session(): pass",
    "tests/spark/test_other": "def test_other(): pass",
}


@pytest.fixture(autouse=True)
def bundled_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MONARQ_TEST_POSTGRES", raising=False)


def run(pytester: pytest.Pytester, *options: str) -> set[str]:
    """Return the ids of the tests that ran, without their modules."""
    pytester.makeini(
        "[pytest]\naddopts = --import-mode=importlib\nmarkers = slow: long\n  smoke: each"
    )
    result = run_planted(pytester, "tests.tiers", "-v", *options, **MODULES)
    assert result.ret == 0
    return set(re.findall(r"::(\S+) PASSED", result.stdout.str()))


def test_the_oldest_postgresql_runs_each_test_of_the_store_once(pytester: pytest.Pytester) -> None:
    ran = run(pytester)
    assert "test_numbers[postgres-oldest-1]" in ran
    assert "test_numbers[postgres-oldest-2]" not in ran
    assert "test_numbers[postgres-newest-2]" in ran


def test_in_memory_and_on_the_oldest_postgresql_a_test_of_each_store_runs_if_it_is_marked_smoke(
    pytester: pytest.Pytester,
) -> None:
    names = ("test_plain", "test_smoke", "test_locks")
    assert {name for name in run(pytester) if name.startswith(names)} == {
        "test_plain[sqlite]",
        "test_plain[postgres-newest]",
        "test_smoke[memory]",
        "test_smoke[sqlite]",
        "test_smoke[postgres-oldest]",
        "test_smoke[postgres-newest]",
        "test_locks[postgres-oldest]",
        "test_locks[postgres-newest]",
    }


def test_an_old_client_runs_on_sqlite_where_no_newer_one_does(pytester: pytest.Pytester) -> None:
    assert {name for name in run(pytester) if "client" in name} == {
        "test_client[0.15.0-postgres-newest]",
        "test_client[newest-sqlite]",
        "test_client[newest-postgres-newest]",
        "test_old_client[0.15.0-sqlite]",
        "test_old_client[0.15.0-postgres-newest]",
    }


def test_every_store_leaves_out_nothing(pytester: pytest.Pytester) -> None:
    assert run(pytester, "--every-store") - run(pytester) == {
        "test_plain[memory]",
        "test_plain[postgres-oldest]",
        "test_slow[memory]",
        "test_slow[postgres-oldest]",
        "test_numbers[memory-2]",
        "test_numbers[postgres-oldest-2]",
        "test_client[0.15.0-sqlite]",
    }


def test_other_parameters_than_the_store_stay_on_the_oldest_postgresql(
    pytester: pytest.Pytester,
) -> None:
    assert {name for name in run(pytester) if name.startswith("test_plans")} == {
        f"test_plans[{server}-{number}]"
        for server in ("postgres-oldest", "postgres-newest")
        for number in (1, 2)
    }


def test_the_quick_tier_has_the_store_on_sqlite_and_one_postgresql_and_the_rest_on_sqlite(
    pytester: pytest.Pytester,
) -> None:
    assert run(pytester, "--quick") == {
        "test_plain[sqlite]",
        "test_smoke[sqlite]",
        "test_smoke[postgres-newest]",
        "test_numbers[sqlite-1]",
        "test_numbers[postgres-newest-1]",
        "test_locks[postgres-newest]",
        "test_plans[postgres-newest-1]",
        "test_both[memory]",
        "test_file[sqlite]",
        "test_sql[postgres-newest]",
        "test_app",
        "test_one_process",
    }


def test_the_quick_tier_takes_a_folder_that_the_command_names(
    pytester: pytest.Pytester,
) -> None:
    assert run(pytester, "--quick", "tests/spark") == {"test_session", "test_other"}
    assert run(pytester, "--quick", "tests/spark/test_spark.py::test_session") == {"test_session"}
    assert run(pytester, "--quick", "tests/server/test_serving_tls.py") == {"test_tls"}


def test_the_quick_tier_takes_what_is_named_in_a_folder_and_no_more_of_it(
    pytester: pytest.Pytester,
) -> None:
    also = run(pytester, "--quick", "tests", "tests/spark/test_spark.py")
    assert also - run(pytester, "--quick") == {"test_session"}
