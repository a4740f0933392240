"""No module or class keeps state of a broker, server, store or client: a process may have several.

What a process has once is listed below, with the reason beside its code.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "monarq"
PACKAGES = ("broker", "client", "operations", "server", "store", "wire", "model")

#: Tables that hold nothing but the results of a function.
ALLOWED = {("server/http/head.py", "_names")}

_CHANGES = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"}
    | {"put", "put_nowait", "remove", "set", "setdefault", "update"}
)
_CONTEXTS = frozenset({"ContextVar", "Lock", "RLock", "Semaphore", "Event", "Condition"})


def shared_state(tree: ast.Module) -> Iterator[str]:
    """Names of the module or its classes that functions bind anew or change, and context variables
    and locks, which are there to be changed."""
    names = dict(_bound(tree.body))
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, value in names.items():
        if isinstance(value, ast.Call) and _called(value) in _CONTEXTS:
            yield name
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=found):
                yield from found
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)):
                if name in names and attr in _CHANGES:
                    yield name
            case (
                ast.Assign(targets=[target])
                | ast.AugAssign(target=target)
                | ast.AnnAssign(target=target)
                | ast.Delete(targets=[target])
            ):
                match target:
                    case ast.Subscript(value=ast.Name(id=name)) if name in names:
                        yield name
                    case ast.Attribute(value=ast.Name(id=name)) if name in classes | {"cls"}:
                        yield f"{name}.{target.attr}"
                    case ast.Attribute(
                        value=ast.Attribute(
                            value=ast.Call(func=ast.Name(id="type")) | ast.Name(id="self"),
                            attr="__class__",
                        )
                    ):
                        yield f"__class__.{target.attr}"


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def test_no_module_or_class_keeps_state() -> None:
    found = {
        (module, name)
        for module, tree in _modules()
        if module.split("/")[0] in PACKAGES
        for name in shared_state(tree)
    }
    assert found == ALLOWED


def test_state_in_a_module_is_found() -> None:
    code = """
import threading
_known: dict[str, int] = {}
_seen = set()
_last = None
_lock = threading.Lock()
_constant = {1: 2}
class Broker:
    count = 0
def learn(name):
    global _last
    _last = name
    _known[name] = _constant[1]
    _seen.add(name)
    Broker.count += 1
    local = {}
    local[name] = 1
"""
    found = set(shared_state(ast.parse(code)))
    assert found == {"_known", "_seen", "_last", "_lock", "Broker.count"}


def test_brokers_are_made_in_one_place() -> None:
    """The parts of a broker are made by its constructor, and that is called by `Broker.start`."""
    made = [
        (module, _called(node))
        for module, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) in ("Broker", "Parts")
    ]
    assert made == [("broker/broker.py", "Parts")]
