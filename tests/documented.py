"""Reads the code blocks of the documentation, so that tests can run them.

A block that cannot be run alone stands behind a comment that says why:

    <!-- not run: it never ends -->
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(
    r"(<!-- not run: (?P<why>.*?) -->\n+)?```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    not_run: str | None


def blocks(page: str, language: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(found["language"], found["code"], found["why"])
        for found in _BLOCK.finditer(text)
        if found["language"] == language
    ]


def runnable(page: str, language: str) -> list[str]:
    return [block.code for block in blocks(page, language) if block.not_run is None]


def links(page: str) -> list[str]:
    """Relative links, without their fragments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    return [link for link in found if not link.startswith("http")]


def pages() -> list[str]:
    documents = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *documents]
