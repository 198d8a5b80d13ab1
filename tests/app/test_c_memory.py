"""How many arenas the C library makes for threads that ask for memory at once, by its own account."""

import os
import subprocess
import sys

import pytest

# Threads that hold memory at once take an arena each, as long as more may be made.
COUNT_ARENAS = """
import ctypes, os, tempfile, threading
from tierdex.app.c_memory import keep_few_arenas
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
keep_few_arenas()
every = threading.Barrier(12)
def hold():
    held = library.malloc(5000)
    every.wait()
    library.free(held)
threads = [threading.Thread(target=hold) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
library.fopen.restype = ctypes.c_void_p
library.malloc_info.argtypes, library.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
with tempfile.NamedTemporaryFile() as file:
    stream = library.fopen(file.name.encode(), b"w")
    library.malloc_info(0, stream)
    library.fclose(stream)
    print(file.read().count(b"<heap nr="), max(2, os.cpu_count()))
"""


@pytest.mark.parametrize("wanted", [None, 7])
@pytest.mark.skipif("glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="is glibc's")
def test_threads_share_as_many_arenas_as_there_are_cores_or_as_the_environment_says(wanted):
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    if wanted:
        environment["MALLOC_ARENA_MAX"] = str(wanted)
    done = subprocess.run(
        [sys.executable, "-c", COUNT_ARENAS], env=environment, capture_output=True, check=True
    )
    arenas, cores = map(int, done.stdout.split())
    assert arenas == (wanted or cores)
