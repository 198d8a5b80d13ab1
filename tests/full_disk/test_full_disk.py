"""A disk that is filled by another process: puts are refused, on file systems that copy on write too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

IMAGE_BYTES = 256 << 20
MAKERS = {
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-m", "single"],
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}


@pytest.fixture(params=MAKERS)
def mounted(request, tmp_path):
    """A small file system of each kind in a file; skips where it cannot be made or mounted."""
    maker = MAKERS[request.param]
    if os.getuid() != 0 or shutil.which(maker[0]) is None:
        pytest.skip(f"needs root and {maker[0]}")
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES if request.param != "xfs" else 2 * IMAGE_BYTES)
    subprocess.run([*maker, str(image)], check=True, capture_output=True)
    mount = subprocess.run(
        ["mount", "-o", "loop", str(image), str(folder)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"cannot mount {request.param}: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_puts_are_refused_while_the_disk_is_full_and_nothing_is_lost(mounted):
    done = subprocess.run(
        [sys.executable, "-m", "tests.full_disk.filling", str(mounted)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, (
        "killed by a store that found no block" if done.returncode < 0 else ""
    )
    seen = json.loads(done.stdout)
    assert set(seen["full"]) <= {"BacklogFullError", "UnavailableError"}
    assert seen["full"], "the disk was never full"
    assert seen["refused after"] == []
    assert seen["level"] == "disk"
    assert (seen["lost when full"], seen["lost after"], seen["lost in the end"]) == (0, 0, 0)
    assert not any(seen["broken"])
    assert seen["acknowledged"] > 10_000
