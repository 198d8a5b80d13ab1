"""Where numba's machine code is kept, and when kept code is used (decision 0081).

::

    kept in   TIERDEX_KERNEL_CACHE_DIR, else the package's own __pycache__, else a temporary folder

Kept code is used by the version of numba, the kind of CPU and the sources that it was made of. numba looks at
the kernel's own file; what is compiled into it from other files is known by the package's RECORD, which
changes with each version that is installed. A checkout has none: see CONTRIBUTING.md. A folder that cannot be
written is a warning in the log, never an error. `TIERDEX_KERNEL_CPU` names the kind of CPU that a wheel's
kernels are compiled for (tools/kernel_library).

Depends on numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Final

from numba.core import caching as _caching
from numba.core import config as _config
from numba.core import runtime as _runtime

caching: Any = _caching
config: Any = _config
runtime: Any = _runtime
_LOGGER = logging.getLogger(__name__)
_PACKAGE: Final = Path(__file__).parents[2]


def _installed_record() -> bytes:
    """Return a digest of the list of installed files; nothing for a checkout."""
    for record in sorted(_PACKAGE.parent.glob("tierdex-*.dist-info/RECORD")):
        with contextlib.suppress(OSError):
            data = record.read_bytes()
            if b"tierdex/__init__.py," in data:  # not that of an editable installation
                return hashlib.sha256(data).digest()
    return b""


_RECORD: Final = _installed_record()


class _Locators:
    """numba's locators, by their names of now; those of before numba 0.62 begin with an underscore."""

    def __getattr__(self, name: str) -> Any:
        return getattr(caching, name, None) or getattr(caching, f"_{name}")


locators: Any = _Locators()


class _Stamped:
    """Adds the package's RECORD to what numba knows of the source file."""

    def get_source_stamp(self) -> Any:
        stamp = super().get_source_stamp()  # type: ignore[misc]
        return (stamp, _RECORD) if _RECORD else stamp


class _GivenFolder(_Stamped, locators.UserProvidedCacheLocator):
    pass


class _BesideSource(_Stamped, locators.InTreeCacheLocator):
    pass


class _OfUser(_Stamped, locators.UserWideCacheLocator):
    pass


class _Kept(caching.CompileResultCacheImpl):
    _locator_classes = [_GivenFolder, _BesideSource, _OfUser]  # noqa: RUF012


class KernelCache(caching.FunctionCache):
    """The kept machine code of one kernel, as numba's dispatcher asks for it.

    Loads it with the runtime alone: getting numba ready to compile takes 0.2 s.
    """

    _impl_class = _Kept

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled kernel; None: it is to be compiled, and numba gets ready then."""
        runtime.rtsys.initialize(target)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target)


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
    """Return a folder in `parent` that no other user can have written in: its files are executed."""
    folder = parent / f"tierdex-kernels-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()  # a link would lead to another user's folder
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if is_ours and not found.st_mode & 0o077:
            return folder
    return Path(tempfile.mkdtemp(prefix="tierdex-kernels-", dir=parent))


if kind := os.environ.get("TIERDEX_KERNEL_CPU"):
    config.CPU_NAME, config.CPU_FEATURES = kind, ""
_choose_cache_folder()
