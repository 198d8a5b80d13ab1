"""The archive for executors: what is in it."""

from __future__ import annotations

import tarfile

from tierdex.pipeline import packing


def test_what_another_process_is_compiling_is_left_out(tmp_path, monkeypatch):
    """Its temporary files may be gone before they are read."""
    cache = tmp_path / "tierdex" / "pipeline" / "__pycache__"
    cache.mkdir(parents=True)
    for name in (
        "a.py311.nbi",
        "a.py311.1.nbc",
        "a.py311.2.nbc.tmp.5f1c",
        "a.cpython-311.pyc.1400",
    ):
        (cache / name).write_bytes(b"x")
    monkeypatch.setattr(packing, "__file__", str(cache.parent / "packing.py"))
    monkeypatch.setattr(packing, "_distributions", list)
    packing.pack_environment(tmp_path / "env.tar")
    with tarfile.open(tmp_path / "env.tar") as archive:
        names = [name.rpartition("/")[2] for name in archive.getnames()]
    assert names == ["a.py311.1.nbc", "a.py311.nbi"]
