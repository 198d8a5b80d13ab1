"""How long a test waits for what must come, before it says that it does not come.

What a test counts on comes within moments on a quiet machine. Other processes may have the cores for
most of the time, and the first process of a machine compiles the kernels, so a wait is longer than any
of that: it only ends what would never end. A time that a test measures is never compared with it.
"""

from __future__ import annotations

import time

PATIENCE_S = 240.0


def wait_until(is_so):
    """Wait until `is_so()` holds."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)
