"""A library of compiled kernels needs no numba, refuses other types, and serves its own sources only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tierdex
from tierdex.fileparts.kernels import built
from tools.kernel_library.names_called import kernel_sources, names_called

PACKAGE = Path(tierdex.__file__).parent
TREE = built.library_path(built.TREE)
pytestmark = pytest.mark.skipif(
    not built.has_fresh(TREE), reason="no C compiler has built the tree's kernels (make kernels)"
)


def run(program: str, *, tree: Path = PACKAGE.parent) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TIERDEX_KERNELS"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"PYTHONPATH": f"{tree}:{PACKAGE.parent}"},
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_every_door_works_where_numba_is_not_installed():
    program = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None  # an import of either fails
from tools import compile_kernels
compile_kernels.use_doors("index", "log")
print("done")
"""
    assert run(program) == "done\n"


def test_a_tree_s_library_is_used_only_while_its_sources_are_as_they_were(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "tierdex", ignore=shutil.ignore_patterns("__pycache__"))
    program = "from tierdex.fileparts.kernels.built import BUILT; print(BUILT is None)"
    assert run(program, tree=tmp_path) == "False\n"
    (tmp_path / "tierdex" / "lifecycle" / "paths.py").touch()  # no kernel is made of it
    assert run(program, tree=tmp_path) == "False\n"
    (tmp_path / "tierdex" / "indexfile" / "layout.py").touch()
    assert run(program, tree=tmp_path) == "True\n"


def test_what_kernels_are_made_of_is_all_that_they_import():
    sources = kernel_sources(PACKAGE)
    assert {"indexfile/layout.py", "logfile/journal/kernels/scan.py"} <= set(sources)
    assert "index_service/index.py" not in sources


@pytest.mark.parametrize(
    "given",
    [
        (np.zeros(4, np.int64), 1, 2, 3),
        (np.zeros(4, np.uint32), 1, 2, 3, 4),
        (np.zeros((4, 4), np.int64)[:, 0], 1, 2, 3, 4),
        (np.zeros((4, 4), np.int64), 1, 2, 3, 4),
        (np.zeros(4, np.int64), 1.0, 2, 3, 4),
        ([0, 0, 0, 0], 1, 2, 3, 4),
        (np.zeros(4, np.int64), 1, 2, 3, 4, 5),
    ],
    ids=["few", "dtype", "stepped", "dimensions", "float", "list", "many"],
)
def test_a_call_with_other_types_than_it_was_built_for_is_refused(given):
    assert built.BUILT is not None
    begin_batch = built.BUILT["tierdex.indexfile.chained.kernels.batch_record.begin_batch"]
    with pytest.raises(TypeError, match=r"kernel .*begin_batch: .* built for ai81iiii"):
        begin_batch(*given)


def test_a_number_that_does_not_fit_is_refused():
    assert built.BUILT is not None
    queue_bounds = built.BUILT["tierdex.fileparts.kernels.fuse_filter.contains_each"]
    with pytest.raises(OverflowError):
        queue_bounds(1 << 64, 0, 0, 0)


def test_the_library_has_every_kernel_that_python_calls():
    assert built.BUILT is not None
    assert names_called(PACKAGE) <= set(built.BUILT)


def test_a_kernel_that_python_s_code_names_is_found(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "made.py").write_text(
        "@kernel\ndef one(): return inner()\n\n@primitive\ndef inner(): return two()\n\n"
        "@short_kernel\ndef two(): pass\n\n@kernel\ndef three(): pass\n"
    )
    (folder / "calls.py").write_text(
        "from package import made\nfrom package.made import one\n\ndef call():\n"
        "    one()\n    made.three()\n"
    )
    assert names_called(folder) == {"package.made.one", "package.made.three"}


def test_a_machine_is_of_a_kind_only_with_all_of_its_features(monkeypatch, tmp_path):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(built, "_CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {' '.join(built.KINDS['x86-64-v2'])} fpu\n")
    assert built.lacking_for("x86-64-v2") == []
    assert "avx2" in built.lacking_for("x86-64-v3")
    (tmp_path / "cpuinfo").unlink()
    assert built.lacking_for("x86-64-v2")
