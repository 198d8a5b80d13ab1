"""Spark's Python with everything loaded: what plans, commits or works is a fork of a process that has it.

Spark runs a daemon of Python (`pyspark.daemon`) for each thing that it does there, and each process that a
daemon forks loads Arrow and the package anew: one for each source that is made, each plan, writer and
commit, half a second of CPU each, hundreds of times in these tests. In place of Python, Spark starts the
program that `write_program` makes; it loads all that, and is the daemon then. What processes load from a
cold start is tested where nothing is loaded before: test_loading.py, test_cluster.py.

A forked process must not inherit a thread, so nothing that is loaded here starts one.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_DAEMON = ["-m", "pyspark.daemon"]
_WORKER = "pyspark.worker"  # what the executors run; the other modules plan and commit
# Threads that libraries start when they are loaded: numpy's algebra, Arrow's memory pool.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_OF_PLANNING = (
    "pyspark.sql.worker.plan_data_source_read",
    "tierdex.pipeline.data_source",
    "tierdex.pipeline.logs.log_source",
    "tierdex.pipeline.scan.reader",
    "tierdex.pipeline.logs.log_reader",
    "tierdex.pipeline.sink.writers",
    "tierdex.pipeline.jobs.publishing",
    "tierdex.storage_layer.local",
)


def write_program(path):
    """Write the program that stands for Python, and return its path."""
    path.write_text(
        f"#!{sys.executable}\n"
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.pipeline.loaded_python import main; main()\n"
    )
    path.chmod(0o755)
    return path


def main():
    """Be Python with these arguments."""
    if sys.argv[1:3] != _DAEMON:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    os.environ.update(_NO_THREADS)
    sys.argv = [_DAEMON[1], *sys.argv[3:]]
    worker = sys.argv[1]
    for name in (worker, *_OF_PLANNING, *(_of_work() if worker == _WORKER else ())):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a forked process must not inherit a thread"
    gc.collect()
    gc.freeze()
    runpy.run_module(_DAEMON[1], run_name="__main__", alter_sys=True)


def _of_work():
    folder = ROOT / "tierdex" / "pipeline"
    return sorted(f"tierdex.pipeline.{path.stem}" for path in folder.glob("*.py"))
