"""Work on items in threads, results in the order of the items.

Depends on nothing.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")


def work_ahead(
    items: Generator[T, None, None], work: Callable[[T], R]
) -> Generator[tuple[T, R], None, None]:
    """Yield (item, result) in order; every core works, a few items ahead of the caller.

    What `work` raises is raised at its item, what `items` raises after the results before it. `items` is
    closed at the end.
    """
    cores = len(os.sched_getaffinity(0))
    waiting: deque[tuple[T, Future[R]]] = deque()
    failure: Exception | None = None
    with ThreadPoolExecutor(cores, "tierdex-load") as pool, closing(items):
        try:
            while failure is None:
                try:
                    item = next(items)
                except StopIteration:
                    break
                except Exception as error:  # noqa: BLE001 - raised below, behind what came before it
                    failure = error
                    break
                waiting.append((item, pool.submit(work, item)))
                if len(waiting) > cores:
                    item, done = waiting.popleft()
                    yield item, done.result()
            while waiting:
                item, done = waiting.popleft()
                yield item, done.result()
        finally:
            for _, unused in waiting:
                unused.cancel()
    if failure is not None:
        raise failure
