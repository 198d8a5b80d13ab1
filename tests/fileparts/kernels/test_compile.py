import os
import subprocess
import sys

SCRIPT = """
import logging; logging.basicConfig()
from tierdex.fileparts.kernels.cache import config
print(config.CACHE_DIR)
"""


def cache_folder(**environment: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"TIERDEX_KERNELS": "compile"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def test_cache_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    folder, log = cache_folder(TIERDEX_KERNEL_CACHE_DIR=str(tmp_path / "file" / "folder"))
    assert "cannot be written" in log
    assert str(tmp_path) not in folder


COMPILED = """
import logging; logging.basicConfig(level=logging.INFO)
import numba
import numpy as np
from tierdex.compilation import compilations

class Watcher:
    def begun(self, count, seconds): print("begun", count)
    def ended(self, count, seconds): print("ended", count, seconds > 0)

compilations.watchers.append(Watcher())
from tierdex.fileparts.kernels.bits import bit_width
print(bit_width(np.uint64(300)), numba.njit(lambda: 7)())
"""


def test_compilation_is_told_and_a_load_from_the_cache_is_not(tmp_path):
    wanted = str(tmp_path / "new" / "folder")  # kernels are kept where the setting says
    environment = os.environ | {"TIERDEX_KERNELS": "compile", "TIERDEX_KERNEL_CACHE_DIR": wanted}
    told = []
    for _ in range(2):
        command = [sys.executable, "-c", COMPILED]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.append(done.stdout.splitlines())
        said = f"compiling kernels, once: they are kept folder={wanted}"
        assert (said in done.stderr) is (len(told) == 1)
    assert told == [["begun 0", "ended 1 True", "9 7"], ["9 7"]]  # what others compile is not ours
