"""Checks that imports inside `monarq` point downward only. Part of `./dev lint`.

Every module belongs to a layer, named by the first part of its path below `monarq`. A name
that `MAY_IMPORT` does not list (`model`, `errors`, `clock`, `config` ...) is a foundation:
anyone may import it, and it may import nothing but other foundations.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "monarq"
SOURCE = Path(__file__).parent.parent / "src"

#: The package itself, `monarq/__init__.py`: the public names.
ROOT = PACKAGE

#: What each layer may import, besides itself and the foundations.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "store": frozenset(),
    "broker": frozenset({"store"}),
    "server": frozenset({"store", "broker"}),
    "client": frozenset({"store", "broker"}),
    "loadgen": frozenset(),
    "jobs": frozenset({"store", "client"}),
    "spark": frozenset({"store", "client"}),
    "testing": frozenset({"store", "broker", "client", "jobs"}),
    "cli": frozenset({"store", "broker", "server", "client", "jobs", "spark", "loadgen", ROOT}),
    "__main__": frozenset({"cli", "server", ROOT}),
    ROOT: frozenset({"store", "broker", "client", "jobs"}),
}


@dataclass(frozen=True)
class Violation:
    path: Path
    line: int
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.importer} may not import {self.imported}"


def find_violations(source: Path = SOURCE) -> list[Violation]:
    """Every import under `source/monarq` that the table above does not allow."""
    return [
        Violation(path, line, importer, imported)
        for path in sorted((source / PACKAGE).rglob("*.py"))
        for importer in [_layer(_module_name(path, source))]
        for line, imported in _imported_layers(path, source)
        if not _is_allowed(importer, imported)
    ]


def _is_allowed(importer: str, imported: str) -> bool:
    is_foundation = imported not in MAY_IMPORT
    return is_foundation or imported == importer or imported in MAY_IMPORT.get(importer, ())


def _layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ROOT


def _module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_layers(path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """The line and layer of each import of our own code, wherever in the file it stands."""
    module = _module_name(path, source)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        for name in _imported_names(node, package):
            if name == PACKAGE or name.startswith(f"{PACKAGE}."):
                yield node.lineno, _layer(_module_part(name, source))


def _imported_names(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            origin = ".".join([*parents, *([module] if module else [])])
            return [f"{origin}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def _module_part(name: str, source: Path) -> str:
    """`monarq.Client` is a name that `monarq/__init__.py` defines; `monarq.store` a module."""
    parts = name.split(".")
    if len(parts) == 2:
        path = source / PACKAGE / parts[1]
        if not (path.is_dir() or path.with_suffix(".py").is_file()):
            return PACKAGE
    return name


def main() -> int:
    violations = find_violations()
    for violation in violations:
        print(violation)
    if violations:
        print(f"Found {len(violations)} imports that point upward; see tests/architecture.py")
    else:
        print("Imports point downward only")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
