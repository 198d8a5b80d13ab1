"""What a child of `os.fork` must not go on with: the kernel copies the process, but only one thread.

A child has its parent's memory, descriptors and shared mappings, and none of its other threads: a lock
that one of these held stays locked for ever, a buffer that waits is written twice, a connection is read
by two, the folder's lock outlives its owner. So whoever holds such a thing tells it here, and is called
in the child before anything else runs there::

    parent   goes on; nothing of it was touched
    child    everything told is called: to let go, refuse, or connect anew. It may take no lock, and
             must not call other libraries.

A process that is made by `exec` (subprocess, multiprocessing's "spawn") inherits none of this. A C
library that forks on its own, around Python, is not seen. Depends on errors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakMethod

from tierdex.errors import ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable

_told: set[WeakMethod[Callable[[], None]]] = set()


def tell_child(method: Callable[[], None]) -> None:
    """Have a bound method called in every child that is forked while its object lives."""
    _told.add(WeakMethod(method, _told.discard))


def forked_error(what: str) -> ForkedError:
    """Return the error for whoever uses `what` of the parent in its child."""
    return ForkedError(
        f"this {what} belongs to process {os.getppid()}, of which this one is a fork: open your own "
        "here (an index with read_only=True while the parent writes its folder)"
    )


class Refusing:
    """Stands in the child where the parent's thing was: whatever is asked of it is refused."""

    def __init__(self, error: ForkedError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise ForkedError(*self._error.args)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise ForkedError(*self._error.args)


def _after_fork() -> None:
    for told in list(_told):
        method = told()
        if method is not None:
            method()


os.register_at_fork(after_in_child=_after_fork)
