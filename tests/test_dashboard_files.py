"""The dashboard's files keep the rules that make it safe and small."""

import gzip
import re
from pathlib import Path

import monarq

ROOT = Path(monarq.__file__).parent / "dashboard"
MODULES = sorted(ROOT.rglob("*.js"))
STYLES = sorted(ROOT.rglob("*.css"))
PAGE = (ROOT / "index.html").read_text()

MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(")
IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*"(\.[^"]+)\"""")
ELSEWHERE = re.compile(r"https?://|//[a-z]+\.[a-z]|@import|url\(")
FIRST_VIEW_BYTES = 200_000
LONGEST = 400


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_module_can_turn_text_into_markup_or_code() -> None:
    assert MODULES
    assert [shown(path) for path in MODULES if MARKUP.search(path.read_text())] == []


def test_what_a_module_imports_is_there() -> None:
    assert [
        f"{shown(path)} imports {name}"
        for path in MODULES
        for name in IMPORT.findall(path.read_text())
        if not (path.parent / name).is_file()
    ] == []


def test_every_module_is_reached_from_the_page() -> None:
    waiting = [ROOT / "js" / "app.js", ROOT / "js" / "theme.js"]
    reached = set(waiting)
    while waiting:
        path = waiting.pop()
        found = {(path.parent / name).resolve() for name in IMPORT.findall(path.read_text())}
        waiting.extend(found - reached)
        reached |= found
    assert {path.resolve() for path in MODULES} == {path.resolve() for path in reached}


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert STYLES
    assert [
        f"{shown(path)}: {found.group()}"
        for path in [*MODULES, *STYLES]
        if (found := ELSEWHERE.search(path.read_text().replace("http://www.w3.org/2000/svg", "")))
    ] == []


def test_modules_are_small() -> None:
    lines = {shown(path): len(path.read_text().splitlines()) for path in [*MODULES, *STYLES]}
    assert {name: count for name, count in lines.items() if count >= LONGEST} == {}


def test_the_page_has_no_inline_script_or_style() -> None:
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", PAGE)
    assert not re.search(r"<script(?![^>]*\ssrc=)", PAGE)


def test_what_the_page_names_is_there() -> None:
    named = re.findall(r'(?:href|src)="/dashboard/([^"]+)"', PAGE)
    assert named
    for name in named:
        assert (ROOT / name).is_file(), name


def test_even_all_of_it_is_less_than_a_first_view_may_be() -> None:
    files = [path for path in ROOT.rglob("*") if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes(), 6)) for path in files) < FIRST_VIEW_BYTES
