"""`register(spark)`: registers the sources and the sink in a session.

Depends on data_source, log_source and scan_report.
"""

from __future__ import annotations

from typing import Any

from tierdex.pipeline.data_source import TierdexDataSource
from tierdex.pipeline.log_source import TierdexLogSource
from tierdex.pipeline.scan_report import session_folder, use_folder


def register(spark: Any, *, notes: str | None = None) -> None:
    """Register ``format("tierdex")`` and ``"tierdex-log"``; leave the setting of filter push-down as it is.

    Arrow batches become large enough for the kernels, unless the session sets their size. `notes`
    is a folder that all machines share, for the reports of `last_scan`; without it the tasks of
    other machines report in their logs only. Raises InvalidRequestError when it is no folder.
    """
    if notes is not None:
        use_folder(notes)
    spark.dataSource.register(source_for(session_folder()))
    spark.dataSource.register(log_source_for(session_folder()))
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    if spark.conf.get(name) == "10000":
        spark.conf.set(name, "65536")


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
