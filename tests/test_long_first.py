"""A run in parallel does what takes long first."""

import re

import pytest

from tests.planted_tests import run_planted

pytest_plugins = ["pytester"]

MODULES = {
    "test_a_few": "def test_one(): pass",
    "test_b_many": "def test_one(): pass\ndef test_two(): pass",
    "test_c_slow": "import pytest\n@pytest.mark.slow\ndef test_one(): pass",
}


def run(pytester: pytest.Pytester, *options: str) -> str:
    pytester.makeini("[pytest]\nmarkers = slow: long")
    result = run_planted(pytester, "tests.long_first", "-v", *options, **MODULES)
    result.assert_outcomes(passed=4)
    return result.stdout.str()


def test_in_parallel_slow_modules_come_first_and_then_those_with_many_tests(
    pytester: pytest.Pytester,
) -> None:
    said = run(pytester, "--numprocesses", "1", "--dist", "loadscope", "--no-loadscope-reorder")
    assert re.findall(r"PASSED test_(\w)_", said) == ["c", "b", "b", "a"]


def test_in_one_process_the_order_is_that_of_the_files(pytester: pytest.Pytester) -> None:
    said = run(pytester, "--numprocesses", "0")
    assert re.findall(r"^test_(\w)_.* PASSED", said, re.MULTILINE) == ["a", "b", "b", "c"]
