"""Keeps the version of PostgreSQL's schema in step with its SQL files.

`migrations.py` holds a version and a digest of the files below `sql`, on one line. A database
whose schema has that version keeps its procedures, so every change of a file needs a new version.
Run as a program, this raises the version if the digest no longer fits the files.
"""

import hashlib
import re
from pathlib import Path

STORE = Path(__file__).parent.parent / "src" / "monarq" / "store" / "postgres"
_LINE = re.compile(r'^VERSION, DIGEST = (\d+), "(\w*)"$', re.MULTILINE)


def digest(store: Path) -> str:
    """Return a digest of the names and contents of the SQL files."""
    files = hashlib.sha256()
    for path in sorted((store / "sql").rglob("*.sql")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        files.update(f"{path.relative_to(store).as_posix()} {content}\n".encode())
    return files.hexdigest()[:16]


def recorded(store: Path) -> tuple[int, str]:
    """Return the version and the digest in migrations.py."""
    text = (store / "migrations.py").read_text(encoding="utf-8")
    lines = _LINE.findall(text)
    if len(lines) != 1:
        raise SystemExit('migrations.py must have one line VERSION, DIGEST = 1, "0123abcd"')
    [(version, found)] = lines
    return int(version), found


def refresh(store: Path) -> bool:
    """Raise the version and record the digest; return False if the digest fits already."""
    version, found = recorded(store)
    now = digest(store)
    if found == now:
        return False
    path = store / "migrations.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(_LINE.sub(f'VERSION, DIGEST = {version + 1}, "{now}"', text), encoding="utf-8")
    return True


if __name__ == "__main__":
    changed = refresh(STORE)
    version, _ = recorded(STORE)
    print(f"schema version {version}", "(raised)" if changed else "(unchanged)")
