"""A Python worker of Spark: what its first task loaded stays, and is not looked at after every task.

Spark's daemon collects garbage over the whole process each time a task ends. With numba and pyarrow loaded
that takes as long as reading some 100,000 messages. Depends on nothing.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import TaskContext

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def worker_task() -> Iterator[None]:
    """Run the body of a task; the first one of a worker process exempts what is there from collection."""
    try:
        yield
    finally:
        if TaskContext.get() is not None and not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
