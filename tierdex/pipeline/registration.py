"""`register(spark)`: registers the source and the sink in a session.

Depends on data_source and scan_report.
"""

from __future__ import annotations

from typing import Any

from tierdex.pipeline.data_source import TierdexDataSource
from tierdex.pipeline.scan_report import session_folder, use_folder


def register(spark: Any, *, notes: str | None = None) -> None:
    """Register ``format("tierdex")``; leave Spark's setting of filter push-down unchanged.

    Arrow batches become large enough for the kernels, unless the session sets their size. `notes`
    is a folder that all machines share, for the reports of `last_scan`; without it the tasks of
    other machines report in their logs only. Raises InvalidRequestError when it is no folder.
    """
    if notes is not None:
        use_folder(notes)
    spark.dataSource.register(source_for(session_folder()))
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    if spark.conf.get(name) == "10000":
        spark.conf.set(name, "65536")


def source_for(folder: str) -> type[TierdexDataSource]:
    """Return the source class with the session's folder in it; Spark pickles it by value."""

    class SessionSource(TierdexDataSource):
        notes_folder = folder

    return SessionSource
