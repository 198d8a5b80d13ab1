"""One library of the kernels' modules: one module, one object file, one call of a C compiler with library.c.

The compiler is the machine's `cc`, else that of Zig, which PyPI has as `ziglang`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import numpy as np

from tools.kernel_library.recorder import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.kernel_library.recorder import KernelCode

LIBRARY_C = Path(__file__).with_name("library.c")


def compiler() -> list[str] | None:
    """Return the command of a C compiler; None where there is none."""
    if found := shutil.which("cc"):
        return [found]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


def link(codes: Iterable[KernelCode], *, cpu: str, features: str, folder: Path) -> Path:
    """Write `kernels.so` into `folder`, and return its path. Raises BuildError."""
    command = compiler()
    if command is None:
        raise BuildError("there is no C compiler: install gcc, or pip install ziglang")
    whole, listed = llvm.parse_assembly(""), []
    for code in sorted(codes):
        whole.link_in(llvm.parse_bitcode(code.bitcode))
        listed.append(
            f'KERNEL("{code.name}", {code.wrapper}, {code.environment}, "{code.arguments}")\n'
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )
    objects, library = folder / "kernels.o", folder / "kernels.so"
    objects.write_bytes(machine.emit_object(whole))
    (folder / "kernels.h").write_text("".join(listed))
    told = subprocess.run(
        [
            *command, "-shared", "-fPIC", "-O2", "-s", "-fvisibility=hidden",
            f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}", f"-I{folder}",
            str(LIBRARY_C), str(objects), "-o", str(library),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if told.returncode:
        raise BuildError(f"the C compiler failed:\n{told.stderr[-4000:]}")
    return library
