"""The one `@kernel` decorator: how every numba kernel of this package is compiled and cached.

Kernels release the GIL, take stable argument types (integers for addresses and counts) and are
compiled once; the machine code is kept in, by preference, `TIERDEX_KERNEL_CACHE_DIR`, the package's
own `__pycache__`, or a temporary folder of this user when neither can be written. A cache folder
that cannot be written is a warning in the log, never an error.

Depends on numba only.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core import config as _config

if TYPE_CHECKING:
    from collections.abc import Callable

config: Any = _config
_LOGGER = logging.getLogger(__name__)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function`: no GIL, no bounds checks, cached on disk."""
    return numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")(function)


def inline_kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` into its callers; it is not cached on its own."""
    return numba.njit(nogil=True, boundscheck=False, error_model="numpy", inline="never")(function)


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
    folder = Path(tempfile.gettempdir()) / f"tierdex-kernels-{os.getuid()}"
    if _can_write(folder) and folder.stat().st_uid == os.getuid():
        folder.chmod(0o700)
    else:
        folder = Path(tempfile.mkdtemp(prefix="tierdex-kernels-"))
    config.CACHE_DIR = str(folder)


_choose_cache_folder()
