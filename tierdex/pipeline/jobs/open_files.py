"""The files of a store that a worker process has open: a later task reads them without a new fetch.

Depends on nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_CACHE_BYTES: Final = 256 << 20
T = TypeVar("T")


class OpenFiles(Generic[T]):
    """Open files by name; the least recently used goes first. One thread at a time."""

    def __init__(self, bytes_of: Callable[[T], int]) -> None:
        """`bytes_of` says how much memory a file takes now."""
        self._files: OrderedDict[Any, T] = OrderedDict()
        self._bytes_of = bytes_of

    def get(self, key: Hashable, open_it: Callable[[], T]) -> T:
        """Return a file, opened when it is not here. Raises what `open_it` raises."""
        found = self._files.pop(key, None) or open_it()
        self._files[key] = found
        while (
            len(self._files) > 1 and sum(map(self._bytes_of, self._files.values())) > _CACHE_BYTES
        ):
            self._files.popitem(last=False)
        return found
