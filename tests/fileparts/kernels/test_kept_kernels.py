"""numba's machine code is kept, for one installation and one kind of CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tierdex

SCRIPT = """
import logging, sys
logging.basicConfig()
import numpy as np
from tierdex.compilation import compilations
from tierdex.fileparts.kernels.bits import bit_width
assert bit_width(np.uint64(300)) == 9
assert ("numba.np.npyimpl" in sys.modules) == bool(compilations.count)  # ready to compile only then
print(compilations.count)
"""


@pytest.fixture
def installed(tmp_path):
    """Return a folder with the package as pip installs it, without any compiled kernel."""
    folder = tmp_path / "site"
    shutil.copytree(
        Path(tierdex.__file__).parent,
        folder / "tierdex",
        ignore=shutil.ignore_patterns("__pycache__", "built"),
    )
    record = folder / "tierdex-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("tierdex/__init__.py,sha256=one,1\n")
    return folder


@pytest.fixture
def compiled(installed, tmp_path):
    """Return a call of a kernel in a process of its own, which says how many it compiled."""

    def compiled(**environment):
        kept = {"PYTHONPATH": str(installed), "TIERDEX_KERNEL_CACHE_DIR": str(tmp_path / "own")}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"TIERDEX_KERNELS": "compile"} | kept | environment,
            cwd=installed,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    return compiled


def test_a_kept_kernel_is_used_by_its_installation_alone(installed, compiled):
    assert [compiled(), compiled()] == [1, 0]
    record = installed / "tierdex-0.1.0.dist-info" / "RECORD"
    record.write_text("tierdex/__init__.py,sha256=two,1\n")
    assert [compiled(), compiled()] == [1, 0]


def test_a_kept_kernel_is_used_for_its_kind_of_cpu_alone(compiled):
    assert [compiled(), compiled(TIERDEX_KERNEL_CPU="x86-64"), compiled()] == [1, 1, 0]
