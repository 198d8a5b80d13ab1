"""What a service loads before it is ready is what its first requests call."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import gc, sys
from pathlib import Path
import numba
from tests.app.conftest import Caller, open_small_files
from tierdex.app.http.first_kernels import FirstKernels
from tierdex.log_service.message_log import MessageLog

def loaded():
    found = [each for each in gc.get_objects() if isinstance(each, numba.core.dispatcher.Dispatcher)]
    return {each.py_func.__qualname__ for each in found if each.overloads}

kind, folder = sys.argv[1], Path(sys.argv[2])
is_log = kind == "log"
kernels = FirstKernels(writes_index=not is_log, writes_log=is_log)
assert kernels.health()
kernels.load()
assert not kernels.health()
before = loaded()
if is_log:
    with MessageLog.open(folder / "log", background=False, journal_bytes=1 << 20, max_message_bytes=1 << 16,
                         slot_count=1024, item_capacity=4096) as log:
        caller = Caller(None, log=log)
        message = {"topic": "orders", "queue_id": 0, "body": "b", "keys": ["A", "B"], "message_id": "m"}
        assert caller.post("/v1/messages", json={"messages": [message]}).status_code == 200
        assert caller.get("/v1/messages?topic=orders&key=A").json()["messages"]
        assert caller.get("/v1/entries?topic=orders&key=A").json()["entries"]
else:
    with open_small_files(folder / "data") as index:
        caller = Caller(index)
        entry = {"topic": "orders", "queue_id": 0, "offset": 1, "size": 2, "timestamp": 1700000000000}
        entries = [{**entry, "keys": ["A", "B"], "message_id": "m"}, {**entry, "key": "C"}]
        for entries in ([entries[0]], entries):
            assert caller.post("/v1/entries", json={"entries": entries}).status_code == 200
        assert caller.get("/v1/entries?topic=orders&key=A").json()["entries"]
        assert caller.get("/v1/entries?message_id=m&max_count=1").json()["entries"]
print(sorted(loaded() - before))
"""


@pytest.mark.parametrize("kind", ["index", "log"])
def test_first_requests_of_a_ready_service_load_no_kernel(kind, tmp_path):
    command = [sys.executable, "-c", _PROGRAM, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def _environment():
    import os
    from pathlib import Path

    return {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "TIERDEX_KERNELS": "compile",
    }
