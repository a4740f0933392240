"""What a serving process does about garbage; in a process of its own, whose settings these are."""

from __future__ import annotations

import subprocess
import sys

MOST = 50_000

#: Makes objects that hold on to themselves until the first is gone; how many those were, and how
#: many objects are not looked at.
PROGRAM = f"""
import gc, weakref
from monarq.server.garbage import spare_what_stays

class Thing:
    def __init__(self):
        self.itself = self

spare_what_stays()
first = weakref.ref(Thing())
made = 1
while first() is not None and made < {MOST}:
    Thing()
    made += 1
print(made, gc.get_freeze_count())
"""


def test_garbage_is_still_found_but_not_looked_for_in_what_was_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    made, spared = map(int, done.stdout.split())
    assert made < MOST
    assert spared > 1_000
