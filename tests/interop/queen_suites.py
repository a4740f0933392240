"""Queen's own test suites against Monarq, from a checkout of Queen.

    python -m tests.interop.queen_suites CHECKOUT [--queenctl PROGRAM] [--go-tests PROGRAM]

Every suite runs on each store, against a fresh broker on port 6632, which the suites have written
in them. Prints how many tests passed and failed, and names each failure with its reason, if it is
a known one. Exits with 1 if no test ran, or if one failed that is not known to fail.

Nothing is built or installed. The checkout must be ready to run:

- `clients/client-py`: runs with this Python, which has what the tests need;
- `clients/client-js`: after `npm install` there;
- `--queenctl`: the program `queenctl`, for its `tests/smoke.sh`;
- `--go-tests`: the tests of `clients/client-go/tests` as a program (`go test -c`).
"""

import argparse
import asyncio
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from tests.postgres_server import NEWEST, PostgresServer, fresh_database
from tests.server.serving import ServerProcess, sqlite_settings

PORT = 6632
SUITE_SECONDS = 1_200

Results = dict[str, bool]
"""Whether each test passed; a test that skips itself is left out."""

_SQL = "reads or writes tables of Queen with SQL"
_STREAMS = "there is no /streams/v1"

#: Tests that are known to fail, as patterns of their names, by suite.
KNOWN: dict[str, dict[str, str]] = {
    "Python": {
        "test_producer_sub_.*": _SQL,
    },
    "JavaScript": {
        "producerSub.*|testPushProducerSub.*": _SQL,
        "(deleteConsumerGroup|deleteConsumerGroupForQueue|seekBackwards)AllowsReconsume": _SQL,
        "testLoadConsumerGroup": "makes a queue with an empty name",
    },
    "JavaScript streams": {".*": _STREAMS},
    "Go": {},
    "queenctl": {},
}


@dataclass(frozen=True)
class Database:
    """Where the suites find a PostgreSQL, which some of them want even to begin."""

    dsn: str

    def environment(self) -> dict[str, str]:
        parts = urlsplit(self.dsn)
        query = dict(one.split("=", 1) for one in parts.query.split("&") if "=" in one)
        return os.environ | {
            "PG_HOST": unquote(parts.hostname or query.get("host", "localhost")),
            "PG_PORT": str(parts.port or query.get("port", 5432)),
            "PG_DB": parts.path.lstrip("/"),
            "PG_USER": unquote(parts.username or "postgres"),
            "PG_PASSWORD": unquote(parts.password or ""),
            "QUEEN_SERVER": f"http://localhost:{PORT}",
            "QUEEN_SERVER_URL": f"http://localhost:{PORT}",
        }


def run(command: Sequence[str], folder: Path, database: Database) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=database.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )
    return done.stdout


def python(checkout: Path, database: Database) -> Results:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        loops = [f"asyncio_default_{kind}_loop_scope=session" for kind in ("fixture", "test")]
        printed = run(
            [
                *(sys.executable, "-m", "pytest", "tests", f"--junitxml={report}"),
                *("-p", "no:cacheprovider", "-o", loops[0], "-o", loops[1]),
                *("--ignore=tests/streams_unit", "--ignore=tests/streams_integration"),
            ],
            checkout / "clients" / "client-py",
            database,
        )
        if not report.exists():
            raise SystemExit(f"the Python suite did not run:\n{printed[-3000:]}")
        cases = ElementTree.parse(report).iter("testcase")
        return {
            one.attrib["name"]: one.find("failure") is None and one.find("error") is None
            for one in cases
            if one.find("skipped") is None
        }


def javascript(tests: str) -> Callable[[Path, Database], Results]:
    def suite(checkout: Path, database: Database) -> Results:
        folder = checkout / "clients" / "client-js" / "test-v2"
        printed = run(["node", "run.js", tests], folder, database)
        _, found, listed = printed.rpartition("Results:\n✅")
        if not found:
            _, found, listed = printed.rpartition("Results:\n❌")
        if not found:
            raise SystemExit(f"the JavaScript suite did not run:\n{printed[-3000:]}")
        lines = re.findall(r"^([✅❌]) (\w+): ", found[-1] + listed, re.MULTILINE)
        return {name: mark == "✅" for mark, name in lines}

    return suite


def go_tests(program: Path) -> Callable[[Path, Database], Results]:
    def suite(checkout: Path, database: Database) -> Results:
        folder = checkout / "clients" / "client-go" / "tests"
        printed = run([str(program), "-test.v"], folder, database)
        lines = re.findall(r"^--- (PASS|FAIL): (\w+) ", printed, re.MULTILINE)
        return {name: word == "PASS" for word, name in lines}

    return suite


def queenctl(program: Path) -> Callable[[Path, Database], Results]:
    def suite(checkout: Path, database: Database) -> Results:
        folder = checkout / "clients" / "client-cli"
        command = ["env", f"BIN={program}", "bash", "tests/smoke.sh"]
        lines = re.findall(r"^(PASS|FAIL) +(.+)$", run(command, folder, database), re.MULTILINE)
        return {re.sub(r" \((exit|rc=).*", "", name): word == "PASS" for word, name in lines}

    return suite


@contextmanager
def broker(store: str, server: PostgresServer) -> Iterator[Database]:
    """A fresh broker on the port of the suites, and a database that is nobody's."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        settings = sqlite_settings(Path(folder)) | {"port": PORT}
        settings["encryption_keys"] = [secrets.token_hex(32)]
        spare = fresh_database(server.dsn)
        own = fresh_database(server.dsn)
        if store == "PostgreSQL":
            settings["store"] = runner.run(own.__aenter__())
        database = Database(runner.run(spare.__aenter__()))
        try:
            with ServerProcess(settings):
                yield database
        finally:
            runner.run(spare.__aexit__(None, None, None))
            if store == "PostgreSQL":
                runner.run(own.__aexit__(None, None, None))


def known_reason(suite: str, test: str) -> str | None:
    for pattern, reason in KNOWN[suite].items():
        if re.fullmatch(pattern, test):
            return reason
    return None


def report(suite: str, store: str, results: Results) -> bool:
    """Print the results, and return whether they are the known ones."""
    failed = [name for name, passed in results.items() if not passed]
    line = f"{suite}, {store}: {len(results) - len(failed)} passed, {len(failed)} failed\n"
    unknown = 0
    for name in failed:
        reason = known_reason(suite, name)
        unknown += reason is None
        line += f"  {name}: {reason or 'NOT KNOWN TO FAIL'}\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    return bool(results) and not unknown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--queenctl", type=Path)
    parser.add_argument("--go-tests", type=Path)
    parser.add_argument("--store", choices=["SQLite", "PostgreSQL"], action="append")
    parser.add_argument("--suite", choices=list(KNOWN), action="append")
    options = parser.parse_args()
    suites: dict[str, Callable[[Path, Database], Results]] = {
        "Python": python,
        "JavaScript": javascript("human"),
        "JavaScript streams": javascript("stream"),
    }
    if options.go_tests is not None:
        suites["Go"] = go_tests(options.go_tests.resolve())
    if options.queenctl is not None:
        suites["queenctl"] = queenctl(options.queenctl.resolve())
    is_known = True
    with PostgresServer(NEWEST) as server:
        for name, suite in suites.items():
            for store in options.store or ["SQLite", "PostgreSQL"]:
                if name in (options.suite or suites):
                    with broker(store, server) as database:
                        results = suite(options.checkout.resolve(), database)
                    is_known &= report(name, store, results)
    return 0 if is_known else 1


if __name__ == "__main__":
    sys.exit(main())
