"""The constraints of `./dev test --lowest` are the lower bounds that pyproject.toml promises."""

import pytest

from tests.lowest_bounds import lowest_bounds


def test_bounds_come_from_the_dependencies_and_the_extras_but_not_from_dev() -> None:
    project = {
        "name": "monarq",
        "dependencies": ["msgspec>=0.19.0", "anyio[trio] >= 4.1, <5"],
        "optional-dependencies": {
            "arrow": ["pyarrow>=18.0.0; python_version < '4'"],
            "all": ["monarq[arrow]"],
            "dev": ["pytest>=8"],
        },
    }
    assert lowest_bounds(project) == {"msgspec": "0.19.0", "anyio": "4.1", "pyarrow": "18.0.0"}


@pytest.mark.parametrize("requirements", [["msgspec"], ["msgspec>=1", "msgspec>=2"]])
def test_a_missing_or_ambiguous_bound_is_an_error(requirements: list[str]) -> None:
    with pytest.raises(ValueError, match="lower bound"):
        lowest_bounds({"name": "monarq", "dependencies": requirements})
