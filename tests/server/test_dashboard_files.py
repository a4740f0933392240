"""The dashboard's files: whole, typed, compressed once, and nothing beside them."""

import gzip
from pathlib import Path

import pytest

from monarq.server.dashboard_files import ROOT, TYPES, DashboardFiles
from tests.server.application import Api

#: What the first view may weigh in all, as it travels.
FIRST_VIEW_BYTES = 200_000


def names() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]


async def test_every_file_of_the_package_is_served_with_its_type(memory_api: Api) -> None:
    assert "index.html" in names()
    for name in names():
        answer = await memory_api.get(f"/dashboard/{name}")
        assert answer.status == 200, name
        assert answer.body == (ROOT / name).read_bytes()
        assert Path(name).suffix in TYPES


async def test_the_page_is_the_index_under_a_strict_policy(memory_api: Api) -> None:
    answer = await memory_api.get("/")
    assert answer.body == (ROOT / "index.html").read_bytes()
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_files_travel_compressed_and_are_not_sent_twice(memory_api: Api) -> None:
    plain = await memory_api.get("/")
    packed = await memory_api.request("GET", "/", None, {"accept-encoding": "br, gzip;q=0.8"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body)
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["ETag"] != plain.headers["ETag"]
    for known in (plain.headers["ETag"], f'"x", W/{plain.headers["ETag"]}', "*"):
        again = await memory_api.request("GET", "/", None, {"if-none-match": known})
        assert (again.status, again.body) == (304, b"")
    other = await memory_api.request("GET", "/", None, {"if-none-match": '"x"'})
    assert other.status == 200
    refused = await memory_api.request("GET", "/", None, {"accept-encoding": "gzip;q=0"})
    assert refused.body == plain.body


async def test_all_that_a_first_view_can_need_is_small() -> None:
    files = DashboardFiles()
    weights = []
    for name in names():
        file = files.read(name)
        assert file is not None
        weights.append(len(file.compressed or file.body))
    assert sum(weights) < FIRST_VIEW_BYTES


@pytest.mark.parametrize(
    "path",
    [
        "..%2Fconfig.py", "../config.py", "../../pyproject.toml", "js/../../config.py",
        "%2e%2e/config.py", "/etc/passwd", "%2Fetc%2Fpasswd", "none.js", "js", "js/", "",
        "index.html/", "*", "/",
        "index.html%00.js", "index.htm", "__init__.py", ".hidden.js", "js//app.js",
    ],
)  # fmt: skip
async def test_nothing_beside_the_files_is_served(memory_api: Api, path: str) -> None:
    answer = await memory_api.get(f"/dashboard/{path}")
    assert answer.status in (400, 404), answer
    assert answer.error


async def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    files = DashboardFiles(tmp_path)
    page = tmp_path / "page.html"
    assert files.known("page.html") is None
    assert files.read("page.html") is None
    page.write_text("one" * 100)
    first = files.read("page.html")
    assert first is not None
    assert files.known("page.html") is first
    page.write_text("two" * 101)
    assert files.known("page.html") is None
    second = files.read("page.html")
    assert second is not None
    assert second.tag != first.tag
    page.unlink()
    assert files.known("page.html") is None


async def test_no_script_or_style_is_inside_the_page_and_nothing_comes_from_elsewhere() -> None:
    page = (ROOT / "index.html").read_text()
    assert "<script>" not in page
    assert "style=" not in page
    assert "<style" not in page
    for name in names():
        if name.endswith((".html", ".css", ".js")):
            text = (ROOT / name).read_text()
            for mark in ('src="http', 'href="http', "@import url(http", 'from "http', "//cdn"):
                assert mark not in text, name
            for mark in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert mark not in text, f"{name} has {mark}"
