"""Runs pytest on planted tests, in a process of its own, with a plugin of the project."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_planted(
    pytester: pytest.Pytester, plugin: str, *options: str, **modules: str
) -> pytest.RunResult:
    pytester.makepyfile(**modules)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(ROOT))
        # Loading all that is installed would take most of the time.
        environment.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_subprocess("-p", "xdist.plugin", "-p", plugin, *options)
