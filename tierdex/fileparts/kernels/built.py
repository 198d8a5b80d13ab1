"""The kernels that a platform wheel brings compiled: `BUILT`, by name; None where kernels are compiled here.

A wheel has one library for each kind of CPU, in the folder `built` beside this module, made by
tools/kernel_library. The best one that this machine can run is loaded; it needs neither numba nor llvmlite.
A source tree has one of its own after `make kernels`, used while the sources that it was built of are as they
were. A pure wheel has none, and `TIERDEX_KERNELS=compile` leaves them alone.

A built kernel takes the types of arguments that the product calls it with, and refuses others (TypeError).
Depends on nothing.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

TREE: Final = "tree"  # the library that `make kernels` builds for a source tree, on this machine
_FOLDER: Final = Path(__file__).with_name("built")
_CPUINFO: Final = Path("/proc/cpuinfo")
_MACHINES: Final = {"x86-64": ("x86_64", "AMD64"), "aarch64": ("aarch64", "arm64")}
_V2: Final = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
# What a kind of CPU can, by the names of Linux (x86-64 psABI); any machine that can all of it runs the code.
KINDS: Final = {
    "x86-64-v3": _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
    "x86-64-v2": _V2,
    "aarch64": frozenset(),
}


def lacking_for(kind: str) -> list[str]:
    """Return what this machine lacks to be of a kind of CPU; nothing: it can all that the kind can."""
    family = "aarch64" if kind == "aarch64" else "x86-64"
    if platform.machine() not in _MACHINES[family]:
        return [family]
    return sorted(KINDS.get(kind, frozenset({kind})) - _features())


def _features() -> frozenset[str]:
    """Return the features of the first processor; none where the system does not tell."""
    try:
        with _CPUINFO.open() as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return frozenset()
    return frozenset(flags.partition(":")[2].split())


def library_path(kind: str) -> Path:
    """Return where the library for a kind of CPU and this Python lies."""
    return _FOLDER / f"{kind}.{sys.implementation.cache_tag}.so"


def sources_path(library: Path) -> Path:
    """Return where the stamps of the sources lie that a tree's own library was built of."""
    return library.with_name(f"{library.name}.sources")


def stamps(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the size and time of each of these files of the package that is there."""
    package, found = _FOLDER.parents[2], {}
    for name in names:
        with contextlib.suppress(OSError):
            status = (package / name).stat()
            found[name] = [status.st_size, status.st_mtime_ns]
    return found


def has_fresh(library: Path) -> bool:
    """Say whether a tree's own library is there, and of the sources as they are now."""
    try:
        listed = json.loads(sources_path(library).read_text())
    except OSError:
        return False
    return library.exists() and listed == stamps(listed)


def _load() -> dict[str, Any] | None:
    if os.environ.get("TIERDEX_KERNELS") == "compile" or not _FOLDER.is_dir():
        return None
    of_wheel = (
        library_path(kind)
        for kind in KINDS
        if library_path(kind).exists() and not lacking_for(kind)
    )
    path = next(of_wheel, library_path(TREE))
    if not (path.exists() and (path != library_path(TREE) or has_fresh(path))):
        return None
    loader = importlib.machinery.ExtensionFileLoader("kernels", str(path))
    spec = importlib.util.spec_from_loader("kernels", loader)
    assert spec is not None
    library = importlib.util.module_from_spec(spec)
    loader.exec_module(library)
    found: dict[str, Any] = library.kernels
    return found


BUILT: Final = _load()
