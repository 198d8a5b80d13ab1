"""What tells things apart: the version of this program, and the only access to randomness.

Components take an `IdSource` as an argument. Simulations pass a seeded one, so that the same seed
gives the same trace.

Depends on nothing.
"""

from __future__ import annotations

import random
import secrets
import threading
from typing import Final, Protocol

__version__: Final = "0.1.0"  # pyproject.toml has the number, too; tools/check_release.py compares


class IdSource(Protocol):
    """The source of values that differ from run to run. Safe to share between threads."""

    def uuid(self) -> bytes:
        """Return 16 bytes that are unique everywhere."""
        ...

    def token(self, size_bytes: int) -> str:
        """Return `size_bytes` of randomness as URL-safe text, fit for a secret."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1), for jitter and sampling."""
        ...


class SystemIds:
    """The operating system's randomness."""

    def uuid(self) -> bytes:
        return secrets.token_bytes(16)

    def token(self, size_bytes: int) -> str:
        return secrets.token_urlsafe(size_bytes)

    def random(self) -> float:
        return secrets.randbits(53) / (1 << 53)


class SeededIds:
    """Reproducible ids for tests and the simulation; never for production."""

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)

    def uuid(self) -> bytes:
        with self._lock:
            return self._random.randbytes(16)

    def token(self, size_bytes: int) -> str:
        with self._lock:
            return self._random.randbytes(size_bytes).hex()

    def random(self) -> float:
        with self._lock:
            return self._random.random()
