"""The memory of the C library in a long-lived process: few arenas, and free memory is returned.

glibc makes up to 8 arenas a core for threads that ask for memory at once. What threads of different lives
leave in each stays in pieces between what is in use: a message log that was used hard for minutes kept twice
what it used (docs/performance.md, "Memory of a log that lives long").

Depends on nothing.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_M_ARENA_MAX: Final = -8  # glibc's malloc.h
_LEAST: Final = 2


def keep_few_arenas() -> None:
    """Limit the arenas of the C library to the number of cores, unless `MALLOC_ARENA_MAX` is set."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, max(_LEAST, os.cpu_count() or _LEAST))


def return_memory() -> None:
    """Return free memory to the system, where the C library can (glibc's malloc_trim)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
