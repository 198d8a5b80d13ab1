"""A Python worker of Spark: what its tasks loaded and opened stays for later ones.

Spark's daemon collects garbage over the whole process each time a task ends. With numba and pyarrow loaded
that takes as long as reading some 100,000 messages; so what the first task loaded is exempt. The files of a
store that are open serve later tasks without a new fetch. Depends on nothing.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyspark import TaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator


@contextmanager
def worker_task() -> Iterator[None]:
    """Run the body of a task; the first one of a worker process exempts what is there from collection."""
    try:
        yield
    finally:
        if TaskContext.get() is not None and not gc.get_freeze_count():
            gc.collect()
            gc.freeze()


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
