"""Machine code that an image brings: made beside the source, read there by who cannot write there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tierdex
from tierdex.fileparts.kernels import cache

SCRIPT = """
import json, logging, sys
logging.basicConfig()
import numpy as np
from tierdex.compilation import compilations
from tierdex.fileparts.kernels.bits import bit_width
from tierdex.fileparts.kernels.cache import config
assert bit_width(np.uint64(300)) == 9
assert ("numba.np.npyimpl" in sys.modules) == bool(compilations.count)  # ready to compile only then
print(json.dumps([compilations.count, config.CPU_NAME]))
"""
KIND = "x86-64-v3"


@pytest.fixture
def installed(tmp_path):
    """Return a folder with the package as pip installs it, without any compiled kernel."""
    folder = tmp_path / "site"
    shutil.copytree(
        Path(tierdex.__file__).parent,
        folder / "tierdex",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    record = folder / "tierdex-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("tierdex/__init__.py,sha256=one,1\n")
    return folder


@pytest.fixture
def run(tmp_path):
    """Return a call of a kernel in a process of its own: (kernels it compiled, kind of CPU, its log)."""

    def run(folder, kind=KIND):
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {
            "PYTHONPATH": str(folder),
            "TIERDEX_KERNEL_CACHE_DIR": str(tmp_path / "own"),
        }
        if kind is not None:
            environment["TIERDEX_KERNEL_CPU"] = kind
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        return (*json.loads(done.stdout), done.stderr)

    return run


def build(folder):
    """Compile the kernel beside its source, as the Dockerfile does."""
    environment = os.environ | {"PYTHONPATH": str(folder), "TIERDEX_KERNEL_CPU": KIND}
    environment.pop("TIERDEX_KERNEL_CACHE_DIR", None)
    subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True, cwd=folder
    )
    assert list(folder.glob("tierdex/fileparts/kernels/__pycache__/bits.*.nbc"))


def unpacked(folder, to):
    """Return a copy with times of its own that nobody may write in, as the layer of an image is unpacked."""
    shutil.copytree(folder, to, copy_function=shutil.copyfile)
    for place in (to, *to.rglob("*")):
        place.chmod(0o555)
    return to


@pytest.mark.skipif(bool(cache.lacking_for(KIND)), reason="this machine is no x86-64-v3")
def test_kernels_of_an_image_are_used_by_who_cannot_write_there(installed, run, tmp_path):
    build(installed)
    image = unpacked(installed, tmp_path / "image")
    assert run(image)[:2] == (0, KIND)
    assert not list(tmp_path.glob("own/*/*"))  # nothing was to be kept


@pytest.mark.skipif(bool(cache.lacking_for(KIND)), reason="this machine is no x86-64-v3")
def test_kernels_of_another_installation_are_not_used(installed, run):
    build(installed)
    (installed / "tierdex-0.1.0.dist-info" / "RECORD").write_text(
        "tierdex/__init__.py,sha256=two,1\n"
    )
    assert [run(installed)[0], run(installed)[0]] == [1, 0]


def test_without_a_kind_kernels_are_this_machine_s_and_kept_where_the_setting_says(installed, run):
    if not cache.lacking_for(KIND):
        build(installed)
    assert [run(installed, kind=None)[:2], run(installed, kind=None)[:2]] == [(1, None), (0, None)]


def test_a_kind_that_this_machine_is_not_is_a_warning_and_compiled_for_this_machine(installed, run):
    compiled, name, log = run(installed, kind="x86-64-v9")
    assert (compiled, name) == (1, None)
    assert "it is no x86-64-v9" in log
