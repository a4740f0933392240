"""A pytest plugin: a run in parallel begins with the modules that take longest.

A process takes one module after the other. Were the long ones left to the end, the last would run
alone. The rest follows by number of tests, the most first.
"""

from collections import Counter
from collections.abc import Sequence

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = long_first(items)


def long_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests of a module stay together, in their order."""
    slow = Counter(_module(item) for item in items if item.get_closest_marker("slow"))
    all_of = Counter(_module(item) for item in items)
    return sorted(
        items,
        key=lambda item: (not slow[_module(item)], -all_of[_module(item)], _module(item)),
    )


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
