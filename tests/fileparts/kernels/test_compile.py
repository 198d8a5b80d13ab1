import os
import subprocess
import sys

SCRIPT = """
import logging; logging.basicConfig()
from tierdex.fileparts.kernels.compile import config
print(config.CACHE_DIR)
"""


def cache_folder(**environment: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def test_kernels_are_cached_where_the_setting_says(tmp_path):
    wanted = str(tmp_path / "new" / "folder")
    assert cache_folder(TIERDEX_KERNEL_CACHE_DIR=wanted)[0] == wanted


def test_cache_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    folder, log = cache_folder(TIERDEX_KERNEL_CACHE_DIR=str(tmp_path / "file" / "folder"))
    assert "cannot be written" in log
    assert str(tmp_path) not in folder
