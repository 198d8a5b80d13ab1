"""How every numba kernel of this package is compiled and cached: `@kernel`, `@short_kernel`, `@primitive`.

Kernels release the GIL, take stable argument types (integers for addresses and counts) and are
compiled once; the machine code is kept in, by preference, `TIERDEX_KERNEL_CACHE_DIR`, the package's
own `__pycache__`, or a temporary folder of this user when neither can be written. A cache folder
that cannot be written is a warning in the log, never an error. A compilation is told to `compilations`.

Depends on compilation and numba.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core import config as _config
from numba.core import event as _events
from numba.core.compiler_lock import global_compiler_lock as _compiling

from tierdex.compilation import compilations

if TYPE_CHECKING:
    from collections.abc import Callable

config: Any = _config
events: Any = _events
_njit: Any = numba.njit  # its stubs do not know every option
_LOGGER = logging.getLogger(__name__)
# A fork waits for a compilation under way: in the child nobody would ever end it, or unlock this.
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
    return _njit(
        nogil=True, cache=True, boundscheck=False, error_model="numpy", no_cfunc_wrapper=True
    )(function)


def short_kernel(function: Callable[..., Any]) -> Any:
    """Compile `function`, which takes well under a microsecond and keeps the GIL.

    Giving the GIL back would cost as much; and so the call is one step for every Python thread.
    """
    return _njit(
        nogil=False, cache=True, boundscheck=False, error_model="numpy", no_cfunc_wrapper=True
    )(function)


def primitive(function: Callable[..., Any]) -> Any:
    """Compile `function` into every kernel that calls it, so that it costs nothing there.

    Its arguments and results stay in registers, named tuples too. Python cannot call it.
    """
    return _njit(
        nogil=True, cache=True, boundscheck=False, error_model="numpy", no_cfunc_wrapper=True,
        no_cpython_wrapper=True, forceinline=True,
    )(function)  # fmt: skip


def direct_call(compiled: Any, *argument_types: Any) -> Any:
    """Return what calls a kernel with arguments of just these types, and does not look at them first.

    That look is half of what a call costs. A value of another type is not refused: the types decide
    what becomes of it (`arguments` has some that refuse).
    """
    if argument_types not in compiled.overloads:  # else numba's lock would be taken all the same
        compiled.compile(argument_types)
    return compiled.overloads[argument_types].entry_point


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _choose_cache_folder() -> None:
    """Point numba at a cache folder that can be written. Runs once, before the first kernel."""
    wanted = os.environ.get("TIERDEX_KERNEL_CACHE_DIR")
    if wanted:
        if _can_write(Path(wanted)):
            config.CACHE_DIR = wanted
            return
        _LOGGER.warning("kernel cache folder cannot be written folder=%s", wanted)
    if config.CACHE_DIR or _can_write(Path(__file__).parent / "__pycache__"):
        return
    config.CACHE_DIR = str(private_folder(Path(tempfile.gettempdir())))


def private_folder(parent: Path) -> Path:
    """Return a folder in `parent` that nobody else can have written in: its files are executed."""
    folder = parent / f"tierdex-kernels-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()  # a link would lead to where somebody else wants us
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if is_ours and not found.st_mode & 0o077:
            return folder
    return Path(tempfile.mkdtemp(prefix="tierdex-kernels-", dir=parent))


_choose_cache_folder()
