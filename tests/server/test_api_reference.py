"""The reference for people: it has every operation, and its examples run as they stand."""

import re
import subprocess
from pathlib import Path

import pytest

from monarq.server.routes import ROUTES
from tests.server.serving import ServerProcess

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "api.md"
BOUND = 120.0

#: `curl` with errors: an example that is refused ends the script, and says why.
PREAMBLE = """
set -eu
curl() { command curl --fail-with-body --silent --show-error "$@" || {
    echo "failed: curl $*" >&2; exit 1; }; }
"""


def examples() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", REFERENCE.read_text(), re.DOTALL | re.MULTILINE)


def test_every_operation_is_in_the_reference_and_no_other() -> None:
    text = REFERENCE.read_text()
    named = set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`\s?]*)`", text))
    assert named == {f"{route.method} {route.path}" for route in ROUTES}


def test_every_path_has_an_example() -> None:
    called = "\n".join(examples())
    without = []
    for route in ROUTES:
        pattern = re.sub(r"\\{\w+\\}", r"[^/?\\s\"']+", re.escape(route.path))
        if not re.search(rf"localhost:6632{pattern}[\s?'\"]", called + "\n"):
            without.append(route.path)
    # What a running attempt prints is for workers, not for people with curl; an analysis is
    # there once Spark has made one, and a worker once it was started.
    assert set(without) <= {
        "/api/v1/dashboard/workers/{worker}/stop",
        "/api/v1/items/{id}/output",
        "/api/v1/pipeline/analyses/{id}",
        "/api/v1/pipeline/analyses/{id}/report",
    }


@pytest.mark.slow
def test_the_examples_run_from_top_to_bottom(server: ServerProcess) -> None:
    script = PREAMBLE + "\n".join(examples())
    script = script.replace("localhost:6632", f"{server.host}:{server.port}")
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout[-2000:]}"
    assert '"redriven":1' in done.stdout
    assert '"status":"buffered"' in done.stdout
