"""How every numba kernel of this package is compiled and cached: `@kernel`, `@short_kernel`, `@primitive`.

Kernels release the GIL, take stable argument types (integers for addresses and counts) and are
compiled once; the machine code is kept (`cache`). A compilation is told to `compilations`.

An array that one kernel passes to another costs 10 ns: numba counts references, also on the path that is not
taken. Functions that loops call take addresses, or are a `primitive`.

Depends on cache, compilation and numba.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import numba
from numba.core import event as _events
from numba.core.compiler_lock import global_compiler_lock as _compiling

from tierdex.compilation import compilations
from tierdex.fileparts.kernels.cache import KernelCache, config

if TYPE_CHECKING:
    from collections.abc import Callable

events: Any = _events
_njit: Any = numba.njit  # its stubs do not know every option
_LOGGER = logging.getLogger(__name__)
# A fork waits for a compilation under way: in the child no thread would ever end it, or unlock this.
os.register_at_fork(
    before=_compiling.acquire,
    after_in_parent=_compiling.release,
    after_in_child=_compiling.release,
)


class _CompilationListener(events.TimingListener):
    """Hears of our kernels that no cache has; one that is compiled within another is part of it."""

    _depth: int

    def on_start(self, event: Any) -> None:
        if not _is_ours(event):
            return
        super().on_start(event)
        if self._depth > 1:
            return
        if not compilations.count:
            folder = config.CACHE_DIR or "each folder's __pycache__"
            _LOGGER.info("compiling kernels, once: they are kept folder=%s", folder)
        compilations.begin()

    def on_end(self, event: Any) -> None:
        if not _is_ours(event):
            return
        super().on_end(event)
        if not self._depth:
            compilations.end(self.duration)


def _is_ours(event: Any) -> bool:
    return bool(event.data["dispatcher"].py_func.__module__.startswith("tierdex."))


events.register("numba:compile", _CompilationListener())


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function`: no GIL, no bounds checks, cached on disk."""
    return _compiled(function, nogil=True)


def short_kernel(function: Callable[..., Any]) -> Any:
    """Compile `function`, which takes well under a microsecond and keeps the GIL.

    Giving the GIL back would cost as much; and so the call is one step for every Python thread.
    """
    return _compiled(function, nogil=False)


def primitive(function: Callable[..., Any]) -> Any:
    """Compile `function` into every kernel that calls it, so that it costs nothing there.

    Its arguments and results stay in registers, named tuples too. Python cannot call it.
    """
    return _compiled(function, nogil=True, no_cpython_wrapper=True, forceinline=True)


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    dispatcher = _njit(
        boundscheck=False, error_model="numpy", no_cfunc_wrapper=True, **options
    )(function)  # fmt: skip
    dispatcher._cache = KernelCache(function)  # what `cache=True` does with a cache of numba's
    return dispatcher


def direct_call(compiled: Any, *argument_types: Any) -> Any:
    """Return what calls a kernel with arguments of just these types, and does not look at them first.

    That look is half of what a call costs. A value of another type is not refused: the types decide
    what becomes of it (`arguments` has some that refuse).
    """
    if argument_types not in compiled.overloads:  # else numba's lock would be taken all the same
        compiled.compile(argument_types)
    return compiled.overloads[argument_types].entry_point
