"""`register(spark)`: makes the source and the sink known to a session. Depends on data_source and
scan_report.
"""

from __future__ import annotations

from typing import Any

from tierdex.pipeline.data_source import TierdexDataSource
from tierdex.pipeline.scan_report import session_folder, use_folder


def register(spark: Any, *, notes: str | None = None) -> None:
    """Register ``format("tierdex")``, and leave the pushing of filters to Python sources as it is.

    Arrow batches become large enough for the kernels to pay, unless the session says otherwise.
    `notes` is a folder that all machines share, for what `last_scan` tells of scans; without it the
    tasks of other machines say it in their logs only. Raises InvalidRequestError for no folder.
    """
    if notes is not None:
        use_folder(notes)
    spark.dataSource.register(source_for(session_folder()))
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    if spark.conf.get(name) == "10000":
        spark.conf.set(name, "65536")


def source_for(folder: str) -> type[TierdexDataSource]:
    """Return the source with the folder of a session's notes in it; it is pickled by value."""

    class SessionSource(TierdexDataSource):
        notes_folder = folder

    return SessionSource
