"""The Spark pipeline: a data source, a sink, and jobs over all files of a store.

::

    register(spark)                     spark.read / df.write / df.writeStream .format("tierdex")
                                        spark.read / spark.readStream .format("tierdex-log")
    build  index_table                  DataFrames, and files that stay in place -> index files
    entries  lookup  fetch_rows         keys -> entries -> the rows they point at
    live_rows                           of entries of a lake's table those whose rows are live
    messages  index_log                 the messages that logs have published; an index of them
    key_is                              the condition that a row is an entry of these keys
    merge  verify  collect_garbage      maintain a store
    last_scan                           what the last scan or lookup considered, pruned, requested

Tasks work on Arrow batches with the kernels of `indexfile`; the driver publishes with one commit of
a shared node. Names are loaded at their first use: `import tierdex.pipeline` loads neither pyspark
nor numba. The modules may import index_service and everything below, never app or client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierdex.pipeline.indexing.build_job import build
    from tierdex.pipeline.indexing.lake_table import live_rows
    from tierdex.pipeline.indexing.log_index_job import index_log
    from tierdex.pipeline.indexing.row_fetch import fetch_rows
    from tierdex.pipeline.indexing.table_index import index_table
    from tierdex.pipeline.jobs.scan_report import last_scan
    from tierdex.pipeline.lookups.lookup_job import lookup
    from tierdex.pipeline.merging.merge_job import collect_garbage, merge
    from tierdex.pipeline.registration import register
    from tierdex.pipeline.row_scans import entries, key_is, messages
    from tierdex.pipeline.session import make_session, plain_errors
    from tierdex.pipeline.verify_job import verify

_HOMES = {  # no module has the name of a function: importing it would hide the function
    "build": "indexing.build_job",
    "collect_garbage": "merging.merge_job",
    "entries": "row_scans",
    "fetch_rows": "indexing.row_fetch",
    "index_log": "indexing.log_index_job",
    "index_table": "indexing.table_index",
    "key_is": "row_scans",
    "last_scan": "jobs.scan_report",
    "live_rows": "indexing.lake_table",
    "lookup": "lookups.lookup_job",
    "make_session": "session",
    "merge": "merging.merge_job",
    "messages": "row_scans",
    "plain_errors": "session",
    "register": "registration",
    "verify": "verify_job",
}
__all__ = [
    "build",
    "collect_garbage",
    "entries",
    "fetch_rows",
    "index_log",
    "index_table",
    "key_is",
    "last_scan",
    "live_rows",
    "lookup",
    "make_session",
    "merge",
    "messages",
    "plain_errors",
    "register",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
