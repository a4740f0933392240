"""The lock files name a hashed version for everything that pyproject.toml asks for."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
EXTRAS = {"serve": ("postgres", "arrow"), "dev": ("dev",)}
LOCKED = re.compile(r"(?P<requirement>[^\s#]+==[^\n]+?) \\\n(?P<hashes>(?: {4}--hash=[^\n]+\n)+)")


def wanted(name: str) -> Iterator[Requirement]:
    """Yield the requirements of a lock file's extras, with those of the extras they include."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = list(EXTRAS[name])
    yield from map(Requirement, project["dependencies"])
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if requirement.name == project["name"]:
                extras.extend(requirement.extras - set(extras))
            else:
                yield requirement
    for line in (ROOT / "requirements/build.in").read_text().splitlines():
        if not line.startswith("#"):
            yield Requirement(line)


def locked(name: str) -> dict[str, list[Requirement]]:
    pins: dict[str, list[Requirement]] = {}
    for match in LOCKED.finditer((ROOT / f"requirements/{name}.txt").read_text()):
        pin = Requirement(match["requirement"])
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    return pins


@pytest.mark.parametrize("name", EXTRAS)
def test_every_requirement_of_the_project_is_locked_within_its_bounds(name: str) -> None:
    pins = locked(name)
    for requirement in wanted(name):
        versions = [next(iter(pin.specifier)).version for pin in pins[requirement.name]]
        assert all(version in requirement.specifier for version in versions), requirement


@pytest.mark.parametrize("name", EXTRAS)
def test_every_locked_version_has_hashes_and_no_address(name: str) -> None:
    text = (ROOT / f"requirements/{name}.txt").read_text()
    pins = re.findall(r"^[^\s#].*", text, re.MULTILINE)
    assert len(pins) == len(LOCKED.findall(text))
    assert "://" not in text


def test_serve_installs_the_versions_that_the_tests_run_on() -> None:
    dev = locked("dev")
    for name, pins in locked("serve").items():
        assert [str(pin.specifier) for pin in pins] == [str(pin.specifier) for pin in dev[name]]
