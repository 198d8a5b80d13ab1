"""Where a message ends: the one rule of both forms, for kernels.

In a *sequence* the message ends at offset + 1, else at offset + size. Headers of sequences are of format
version 2: a program that counted a sequence by size would set a watermark too high, and an entry would be
lost.

Depends on the kernel decorator only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import primitive

_INT64_MAX = np.int64(0x7FFFFFFFFFFFFFFF)


@primitive
def end_of(offset: int, size: int, step: int) -> Any:
    """Return the end offset: `step` behind `offset`, or `size` where `step` is 0; 2**63 - 1 at most."""
    length = np.int64(size if step == 0 else step)
    return min(np.int64(offset), _INT64_MAX - length) + length
