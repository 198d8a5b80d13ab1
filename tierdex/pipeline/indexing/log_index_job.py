"""`index_log`: builds the index of published logs that have none, so that lookups find every key of them.

A log's own index is published beside it. It may be missing: lost, or given up. What is built lies in a
shared node, which jobs may write (`log_index_node`); the sink makes its files.

Depends on errors, build_job, job_store, log_index_node, row_scans, options, snapshot and table_index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tierdex.errors import AlreadyExistsError, NotFoundError
from tierdex.pipeline.indexing.build_job import shape_by_size
from tierdex.pipeline.indexing.table_index import IndexReport
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.options import TARGET_ENTRIES
from tierdex.pipeline.jobs.snapshot import take_log_snapshot
from tierdex.pipeline.logs.log_index_node import index_node_of
from tierdex.pipeline.row_scans import messages

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLUMNS = ("topic", "keys", "message_id", "timestamp", "queue_id", "offset", "size")


def index_log(
    spark: Any,
    store_url: str,
    *,
    node: str,
    again: bool = False,
    target_entries: int = TARGET_ENTRIES,
    options: Mapping[str, str] | None = None,
) -> IndexReport:
    """Index the keys and message IDs of all messages that the log of `node` has published.

    The entries lie in the shared node ``<node>.index``, published by one commit; `lookup` and every reader
    of the store find them, and ``with_body=True`` reads the messages of `node`. Messages that are published
    later are not in it. A log that has an index in the store is refused without `again`: lookups would
    find each message twice. `options` are the sink's. Raises NotFoundError for a node without a
    log, AlreadyExistsError, and what Spark and the store raise.
    """
    link = StoreLink.of(store_url, options)
    files, states = take_log_snapshot(link.open())
    mine = [file for file in files if file.node == node]
    if not mine:
        raise NotFoundError(f"node {node} has published no log in {store_url}")
    target = index_node_of(node)
    has_index = [
        state.node for state in states if state.node in {node, target} and state.index_files
    ]
    if has_index and not again:
        raise AlreadyExistsError(
            f"the log of {node} has an index in node {has_index[0]}: lookups would find each message twice; "
            "give again=True where it is not whole"
        )
    credentials = {name: value for name, value in (options or {}).items() if name.startswith("aws")}
    read = Observation()
    kept = Observation()
    scan = messages(spark, store_url, nodes=node, columns=_COLUMNS, options=credentials)
    seen = scan.observe(read, F.count(F.lit(1)).alias("rows"))
    named = seen.where((F.size("keys") > 0) | F.col("message_id").isNotNull())
    entries = named.observe(kept, F.count(F.lit(1)).alias("rows"))
    shaped = shape_by_size(entries, sum(file.row.item_count for file in mine), target_entries)
    writer = shaped.write.format("tierdex").mode("append").option("node", target)
    writer = writer.option("offsets", "sequence").option("targetEntries", str(target_entries))
    writer.options(**dict(options or {})).save(store_url)
    rows = int(read.get["rows"])
    return IndexReport(rows=rows, skipped=rows - int(kept.get["rows"]), files=len(mine))
