"""Builds the library of compiled kernels for this Python.

    python -m tools.kernel_library                               for this tree, on this machine (make kernels)
    python -m tools.kernel_library --cpu x86-64-v3 --folder DIR  for a wheel (tools/make_wheel.py)

Two processes use the doors of tools/compile_kernels.py and note the kernels that Python calls; this one
links what they noted. A kernel that Python's code names and that neither noted is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import tierdex
from tierdex.fileparts.kernels import built
from tools.kernel_library.names_called import kernel_sources, names_called

_PACKAGE: Final = Path(tierdex.__file__).parent
_PARTS: Final = ("index", "log")  # about as long, each with the other's kernels that it needs


def main() -> None:
    """Build for a kind of CPU, or for this tree where its library is not of the sources as they are."""
    parser = argparse.ArgumentParser(prog="tools.kernel_library")
    parser.add_argument("--cpu", default=built.TREE, help="the kind of CPU, as LLVM names it")
    parser.add_argument("--folder", type=Path, help="where kernels.so is written")
    parser.add_argument("--part", choices=_PARTS, help="note the kernels of some doors alone")
    given = parser.parse_args()
    if given.part:
        _note(given.part, given.folder)
    elif given.folder:
        print(_build(given.cpu, given.folder))
    elif not built.has_fresh(built.library_path(built.TREE)):
        _build_for_tree(built.library_path(built.TREE))


def _build_for_tree(library: Path) -> None:
    """Build the tree's own library. Its list of sources comes last: no old one lies beside a new library."""
    from tools import compile_kernels
    from tools.kernel_library.linking import compiler

    if compiler() is None:
        print("no C compiler: every process loads numba for its kernels, a second more for each")
        compile_kernels.use_doors(*compile_kernels.DOORS)
        return
    print("compiling the kernels, once: a minute on two cores", flush=True)
    sources = built.stamps(kernel_sources(_PACKAGE))
    with tempfile.TemporaryDirectory() as folder:
        made = _build(built.TREE, Path(folder))
        library.parent.mkdir(exist_ok=True)
        built.sources_path(library).unlink(missing_ok=True)
        new = library.with_name(f"{library.name}.new")  # a process may have the old one mapped
        shutil.copyfile(made, new)
        new.replace(library)
        built.sources_path(library).write_text(json.dumps(sources))


def _build(cpu: str, folder: Path) -> Path:
    from tools.kernel_library.linking import link
    from tools.kernel_library.rare_calls import OF_OTHER_MACHINES
    from tools.kernel_library.recorder import BuildError, read_codes

    folder.mkdir(parents=True, exist_ok=True)
    # Read while the package is imported. What numba keeps of a tree's kernels stays beside them.
    environment = {**os.environ, "TIERDEX_KERNELS": "compile"}
    if cpu != built.TREE:
        environment |= {
            "TIERDEX_KERNEL_CPU": _llvm_name(cpu),
            "TIERDEX_KERNEL_CACHE_DIR": str(folder.absolute() / "kept"),
        }
    command = [sys.executable, "-m", "tools.kernel_library", "--folder", str(folder), "--part"]
    running = [subprocess.Popen([*command, part], env=environment) for part in _PARTS]
    ended = [each.wait() for each in running]
    if any(ended):
        sys.exit("the kernels could not be compiled: what went wrong stands above")
    codes = {code.name: code for part in _PARTS for code in read_codes(folder / part)}
    if missing := names_called(_PACKAGE) - OF_OTHER_MACHINES - set(codes):
        sys.exit(
            "Python calls these kernels, and no door of tools/compile_kernels.py does; add a call there,"
            f" or their types to tools/kernel_library/rare_calls.py: {', '.join(sorted(missing))}"
        )
    try:
        library = link(codes.values(), cpu=_llvm_name(cpu), features=_features(cpu), folder=folder)
    except BuildError as error:
        sys.exit(str(error))
    print(f"{len(codes)} kernels built")
    return library


def _llvm_name(cpu: str) -> str:
    import llvmlite.binding as llvm

    if cpu == built.TREE:
        return str(llvm.get_host_cpu_name())
    return "generic" if cpu == "aarch64" else cpu


def _features(cpu: str) -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_features().flatten()) if cpu == built.TREE else ""


def _note(part: str, folder: Path) -> None:
    """Use the doors of a part, and write down the kernels that Python calls."""
    from tools import compile_kernels
    from tools.kernel_library.rare_calls import OF_OTHER_MACHINES, rare_calls
    from tools.kernel_library.recorder import Recorder, write_codes

    with Recorder() as recorder:
        if (
            part == "log"
        ):  # meanwhile the other part compiles the index's kernels, which a log loads then
            for call in rare_calls():
                recorder.add(*call)
        compile_kernels.use_doors(part)
    recorder.add_compiled(names_called(_PACKAGE) - OF_OTHER_MACHINES - set(recorder.found))
    write_codes([each.code() for each in recorder.found.values()], folder / part)


if __name__ == "__main__":
    main()
