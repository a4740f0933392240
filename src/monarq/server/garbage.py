"""How a serving process has its memory looked through for garbage that holds on to itself.

Requests leave next to none: what they make goes with its last reference. Python looks nevertheless
after every 700 new objects, and from time to time at everything there is, which was a fifth of what
a push cost. Only for processes that serve and do nothing else: the settings hold for all of one.
"""

from __future__ import annotations

import gc

_YOUNG = 10_000
"""New objects after which it looks at these; more than calls under way hold at once, as a rule."""


def spare_what_stays() -> None:
    """To be called when all is loaded: what is there then stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
