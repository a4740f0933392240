"""The dashboard's files keep the rules that make it safe and small."""

import gzip
import re
from pathlib import Path

import pytest

import monarq

ROOT = Path(monarq.__file__).parent / "dashboard"
MODULES = sorted(ROOT.rglob("*.js"))
STYLES = sorted(ROOT.rglob("*.css"))
PAGE = (ROOT / "index.html").read_text()

MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(")
IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*"(\.[^"]+)\"""")
FIRST_VIEW_BYTES = 200_000
LONGEST = 400


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_no_module_can_turn_text_into_markup_or_code(path: Path) -> None:
    assert not MARKUP.search(path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_what_a_module_imports_is_there(path: Path) -> None:
    for name in IMPORT.findall(path.read_text()):
        assert (path.parent / name).is_file(), f"{shown(path)} imports {name}"


def test_every_module_is_reached_from_the_page() -> None:
    waiting = [ROOT / "js" / "app.js", ROOT / "js" / "theme.js"]
    reached = set(waiting)
    while waiting:
        path = waiting.pop()
        found = {(path.parent / name).resolve() for name in IMPORT.findall(path.read_text())}
        waiting.extend(found - reached)
        reached |= found
    assert {path.resolve() for path in MODULES} == {path.resolve() for path in reached}


@pytest.mark.parametrize("path", [*MODULES, *STYLES], ids=shown)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|url\(", text)


@pytest.mark.parametrize("path", [*MODULES, *STYLES], ids=shown)
def test_modules_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) < LONGEST


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
