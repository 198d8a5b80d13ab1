"""`os.fork`: objects that a child process must not use refuse its calls.

A child has its parent's memory, descriptors and shared mappings, and only one thread. A lock that
another thread held stays locked for ever, a waiting buffer is written twice, two processes read
from one connection, the folder's lock outlives its owner. So an object with such state registers a
method here, which is called in the child before any other code runs there::

    parent   goes on unchanged
    child    every registered method is called: it releases, refuses, or prepares to connect anew. It
             may take no lock, and must not call other libraries.

A process made by `exec` (subprocess, multiprocessing's "spawn") inherits none of this. A fork by a
C library, without Python, is not detected.

Depends on errors.
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
    """Register a bound method to be called in every forked child while its object lives."""
    _told.add(WeakMethod(method, _told.discard))


def forked_error(what: str) -> ForkedError:
    """Return the error for the use of the parent's `what` in a child."""
    return ForkedError(
        f"this {what} belongs to process {os.getppid()}, of which this one is a fork: open your own "
        "here (an index with read_only=True while the parent writes its folder)"
    )


class Refusing:
    """Takes the place of the parent's object in the child: every call raises."""

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
