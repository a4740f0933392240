"""What is said to the person at the terminal, on stderr, so that stdout stays for answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def complain(text: str) -> None:
    """A line on stderr: no markup, no wrapping."""
    from monarq.cli.terminal import shown

    print(f"monarq: {shown(text, sys.stderr)}", file=sys.stderr)


def answers() -> Console:
    """A console for tables on stdout."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def progress() -> Console:
    """A console for what is under way, on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)
