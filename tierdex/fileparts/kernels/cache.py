"""Where machine code is kept, and when kept code is used (decision 0081).

::

    written to   TIERDEX_KERNEL_CACHE_DIR, else the package's own __pycache__, else a temporary folder
    read from    there; and first from the package's own __pycache__, when TIERDEX_KERNEL_CPU names the
                 kind of CPU that an image was built for, and this machine can do what that can

Kept code is used by the version of numba, the kind of CPU and the sources that it was made of. numba looks at
the kernel's own file; what is compiled into it from other files is known by the package's RECORD, which
changes with each version that is installed. A checkout has none: see CONTRIBUTING.md. A folder that cannot be
written is a warning in the log, never an error.

Depends on numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import stat
import tempfile
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as _llvm
from numba.core import caching as _caching
from numba.core import config as _config
from numba.core import runtime as _runtime

caching: Any = _caching
config: Any = _config
runtime: Any = _runtime
llvm: Any = _llvm
_LOGGER = logging.getLogger(__name__)
_PACKAGE: Final = Path(__file__).parents[2]
# What LLVM's name of a kind of CPU means: any machine that can all of it runs the code.
_KINDS: Final = {
    "x86-64-v3": {
        "cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2", "xsave",
        "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe",
    },
}  # fmt: skip


def lacking_for(kind: str) -> list[str]:
    """Return what this machine lacks to be of a kind of CPU; nothing: it can all that the kind can."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["x86-64"]
    found = llvm.get_host_cpu_features()
    return [name for name in sorted(_KINDS.get(kind, {kind})) if not found.get(name)]


def _use_kind_of_cpu() -> bool:
    """Compile for the kind of CPU that `TIERDEX_KERNEL_CPU` names; False where this machine is none of it."""
    wanted = os.environ.get("TIERDEX_KERNEL_CPU")
    if not wanted:
        return False
    if lacking := lacking_for(wanted):
        _LOGGER.warning(
            "kernels are compiled for this machine: it is no %s, for want of %s",
            wanted,
            ", ".join(lacking),
        )
        return False
    config.CPU_NAME, config.CPU_FEATURES = wanted, ""
    return True


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


class _ReadBesideSource(_BesideSource):
    def ensure_cache_path(self) -> None:
        """Whether it can be written does not matter."""


class _Kept(caching.CompileResultCacheImpl):
    _locator_classes = [_GivenFolder, _BesideSource, _OfUser]  # noqa: RUF012


class _Ready(caching.CompileResultCacheImpl):
    _locator_classes = [_ReadBesideSource]  # noqa: RUF012


class _Cache(caching.FunctionCache):
    """Loads kept code with the runtime alone; getting numba ready to compile takes 0.2 s."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled kernel; None: it is to be compiled, and numba gets ready then."""
        runtime.rtsys.initialize(target)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target)


class _ReadyCache(_Cache):
    """What was compiled beside the source when the image was built. Read only."""

    _impl_class = _Ready


class KernelCache(_Cache):
    """The kept machine code of one kernel, as numba's dispatcher asks for it."""

    _impl_class = _Kept

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._ready = _ReadyCache(function) if _HAS_READY else None

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled kernel; None: it is to be compiled."""
        if self._ready is not None:
            found = self._ready.load_overload(signature, target)
            if found is not None:
                return found
        return super().load_overload(signature, target)


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


_HAS_READY: Final = _use_kind_of_cpu()
_choose_cache_folder()
