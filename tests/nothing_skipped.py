"""A pytest plugin: with CI=true in the environment, a run that skipped something fails.

A test that is skipped on a developer's machine says how to get what it misses. In CI it would
be a promise that nobody checks.
"""

import os

import pytest


def _not_run(config: pytest.Config) -> list[pytest.TestReport | pytest.CollectReport]:
    if os.environ.get("CI") != "true":
        return []
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker process; the controlling one hears of everything
        return []
    return [report for kind in ("skipped", "xfailed") for report in reporter.stats.get(kind, [])]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _not_run(session.config) and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    reports = _not_run(config)
    if not reports:
        return
    terminalreporter.section("not run, which is a failure in CI", sep="=", red=True)
    for report in reports:
        terminalreporter.line(f"{report.nodeid}: {_reason(report)}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail or 'no reason given'}"
    match report.longrepr:
        case (_, _, str(reason)):
            return reason
    return "skipped"
