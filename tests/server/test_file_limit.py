"""The limit on open files bounds the connections, in all and from one address."""

import pytest

from monarq.config import Settings
from monarq.server import serving


def limits(monkeypatch: pytest.MonkeyPatch, files: int, **settings: int) -> tuple[int, int]:
    monkeypatch.setattr(serving, "raise_file_limit", lambda: files)
    found = serving._within_file_limit(Settings(**settings))
    return found.max_connections, found.max_connections_per_address


@pytest.mark.parametrize(
    ("files", "expected"),
    [(1_000_000, (20_000, 10_000)), (1_024, (768, 384)), (100, (16, 8))],
)
def test_one_address_cannot_take_all_connections_that_the_limit_allows(
    monkeypatch: pytest.MonkeyPatch, files: int, expected: tuple[int, int]
) -> None:
    assert limits(monkeypatch, files) == expected


def test_an_address_that_may_take_all_connections_still_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised = {"max_connections": 5_000, "max_connections_per_address": 5_000}
    assert limits(monkeypatch, 1_024, **raised) == (768, 768)
    assert limits(monkeypatch, 1_024, max_connections_per_address=1) == (768, 1)
