"""A run in CI fails when something in it was skipped, and says what."""

import pytest

from tests.planted_tests import run_planted

pytest_plugins = ["pytester"]

TESTS = {
    "skipped": "import pytest\n@pytest.mark.skip(reason='no browser')\ndef test_it(): pass",
    "skipped inside": "import pytest\ndef test_it(): pytest.skip('no browser')",
    "module skipped": "import pytest\npytest.skip('no browser', allow_module_level=True)",
    "xfailed": "import pytest\n@pytest.mark.xfail(reason='no browser')\ndef test_it(): assert 0",
}
PASSING = "def test_passes(): pass"


def run(pytester: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    modules = {"test_planted": code, "test_other": PASSING}
    return run_planted(pytester, "tests.nothing_skipped", *options, **modules)


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, ()) for kind in TESTS), ("module skipped", ("--numprocesses", "1"))],
)
def test_what_is_skipped_fails_the_run_in_ci(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    options: tuple[str, ...],
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester, TESTS[kind], *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*not run, which is a failure in CI*", "*planted*no browser*"])


def test_outside_ci_a_skip_is_no_failure(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert run(pytester, TESTS["skipped"]).ret == pytest.ExitCode.OK


def test_in_ci_a_run_without_skips_passes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    assert run(pytester, PASSING).ret == pytest.ExitCode.OK
