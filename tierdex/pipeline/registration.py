"""`register(spark)`: registers the sources and the sink in a session.

Depends on data_source, errors, log_source and scan_report.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tierdex.errors import InvalidRequestError
from tierdex.pipeline.data_source import TierdexDataSource
from tierdex.pipeline.jobs.scan_report import session_folder, use_folder
from tierdex.pipeline.logs.log_source import TierdexLogSource


def register(spark: Any, *, notes: str | None = None) -> None:
    """Register ``format("tierdex")`` and ``"tierdex-log"``; leave the setting of filter push-down as it is.

    Arrow batches become large enough for the kernels, unless the session sets their size. `notes`
    is a folder that all machines share, for the reports of `last_scan`; without it the tasks of
    other machines report in their logs only. Raises InvalidRequestError when it is no folder, and when a
    session on this machine would start its Python workers with another Python than this one.
    """
    _check_workers_python(spark)
    if notes is not None:
        use_folder(notes)
    spark.dataSource.register(source_for(session_folder()))
    spark.dataSource.register(log_source_for(session_folder()))
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    if spark.conf.get(name) == "10000":
        spark.conf.set(name, "65536")


def _check_workers_python(spark: Any) -> None:
    """Refuse a local session whose workers would not find this package: their error would not say why.

    Spark reads the variable when its JVM starts, so it cannot be set here any more.
    """
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none
    if context is None or not context.master.startswith("local"):
        return
    found = shutil.which(context.pythonExec)
    if found is not None and _imports_the_package(found):
        return
    raise InvalidRequestError(
        f"this session's Python workers are {found or context.pythonExec}, without tierdex: set "
        f"PYSPARK_PYTHON to {sys.executable} before the session is made, or make it with "
        "tierdex.pipeline.make_session",
        field="PYSPARK_PYTHON",
    )


@cache
def _imports_the_package(python: str) -> bool:
    # The folder tells environments apart: their Pythons are links to one that lies outside.
    if Path(python).parent.resolve() == Path(sys.executable).parent.resolve():
        return True
    asked = subprocess.run([python, "-c", "import tierdex"], capture_output=True, check=False)
    return asked.returncode == 0


def source_for(folder: str) -> type[TierdexDataSource]:
    """Return the source class with the session's folder in it; Spark pickles it by value."""

    class SessionSource(TierdexDataSource):
        notes_folder = folder

    return SessionSource


def log_source_for(folder: str) -> type[TierdexLogSource]:
    """Return the class of the log's source, in the same way."""

    class SessionLogSource(TierdexLogSource):
        notes_folder = folder

    return SessionLogSource
