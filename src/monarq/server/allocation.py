"""How a serving process keeps memory that it will want again with the next request.

The C library gives freed memory at the end of its heap back to the system as soon as there is
little more of it than the largest buffer so far, so that every request of some megabytes had its
pages taken away and given anew, emptied: a third of what a push of thousands cost. Only for
processes that serve and do nothing else: the settings hold for all of one.
"""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The names that glibc's `mallopt` has for them."""
_KEPT_BYTES = 32 << 20
_OWN_MAPPING_BYTES = 8 << 20
"""Larger buffers have pages of their own, which go as soon as the buffer does."""


def keep_freed_memory() -> None:
    """Where the C library is another one than glibc, nothing is changed."""
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
