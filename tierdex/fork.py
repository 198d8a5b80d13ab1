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
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

from tierdex.errors import ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable

# Without callbacks of weakrefs (`WeakMethod` has one): at the end of a program they run when what they
# need is gone already.
_told: list[tuple[ref[Any], Callable[[Any], None]]] = []
_most = 64


def tell_child(method: Callable[[], None]) -> None:
    """Register a bound method to be called in every forked child while its object lives."""
    global _most
    assert isinstance(method, MethodType), method
    if len(_told) >= _most:
        _told[:] = [told for told in list(_told) if told[0]() is not None]
        _most = max(64, 2 * len(_told))
    _told.append((ref(method.__self__), method.__func__))


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
    for reference, function in _told:
        owner = reference()
        if owner is not None:
            function(owner)


os.register_at_fork(after_in_child=_after_fork)
