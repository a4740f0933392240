"""Prints the lower bounds of pyproject.toml as pip constraints, for `./dev test --lowest`.

Only what users install is pinned: the dependencies and the extras other than `dev`.
"""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*>=\s*(?P<bound>[^\s,;]+)")


def lowest_bounds(project: dict[str, object]) -> dict[str, str]:
    """The name and lower bound of each requirement; one without a bound is an error."""
    extras = project.get("optional-dependencies", {})
    requirements = [
        *project["dependencies"],
        *(line for extra, lines in extras.items() if extra != "dev" for line in lines),
    ]
    bounds: dict[str, str] = {}
    for requirement in requirements:
        if requirement.startswith(f"{project['name']}["):
            continue
        match = REQUIREMENT.match(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} needs a lower bound: name>=version")
        name, bound = match["name"], match["bound"]
        if bounds.setdefault(name, bound) != bound:
            raise ValueError(f"{name} has two lower bounds: {bounds[name]} and {bound}")
    return bounds


def main() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    for name, bound in lowest_bounds(project).items():
        print(f"{name}=={bound}")


if __name__ == "__main__":
    main()
