"""numba as the compiler of kernels: its options, where machine code is kept, what is told of compiling.

Imported only where kernels did not come built (`compile`). Depends on cache, compilation and numba.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

try:
    import numba
except ModuleNotFoundError as error:
    raise ImportError(
        "this installation has no compiled kernels for this machine, and no numba to compile them:"
        " pip install 'tierdex[compile]'"
    ) from error
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


def compiled(function: Callable[..., Any], **options: bool) -> Any:
    """Return numba's dispatcher of `function`, whose machine code is kept."""
    dispatcher = _njit(
        boundscheck=False, error_model="numpy", no_cfunc_wrapper=True, **options
    )(function)  # fmt: skip
    dispatcher._cache = KernelCache(function)  # what `cache=True` does with a cache of numba's
    return dispatcher


def entry_point(dispatcher: Any, argument_types: tuple[Any, ...]) -> Any:
    """Return what calls the code for just these types."""
    if argument_types not in dispatcher.overloads:  # else numba's lock would be taken all the same
        dispatcher.compile(argument_types)
    return dispatcher.overloads[argument_types].entry_point
