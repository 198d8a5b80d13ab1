"""`messages`: a scan of the messages that its arguments select.

The selection is part of the relation, as that of `entries` is. Depends on entry_scan, log_options, times
and registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.pipeline.entry_scan import listed
from tierdex.pipeline.logs.log_options import LogOptions
from tierdex.pipeline.registration import register
from tierdex.times import to_ms

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence


def messages(
    spark: Any,
    store_url: str,
    *,
    topic: str | Sequence[str] | None = None,
    queue_id: int | Sequence[int] | None = None,
    begin_offset: int | None = None,
    end_offset: int | None = None,
    begin: int | str | datetime.datetime | None = None,
    end: int | str | datetime.datetime | None = None,
    nodes: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return the published messages of these topics, queues, offsets, times and nodes.

    An argument that is None selects everything. `begin_offset` is the first offset of each queue,
    `end_offset` the one behind the last; times are inclusive: milliseconds, RFC 3339, or datetimes with a
    zone. They leave out files and pages, as the options of ``spark.read.format("tierdex-log")`` do; Spark
    evaluates a condition of a later `where` on each row of this scan.

    Lazy; the first query takes the snapshot, which is kept. Raises InvalidRequestError.
    """
    chosen = {"topic": topic, "nodes": nodes, "columns": columns}
    given = {name: listed(value) for name, value in chosen.items() if value is not None}
    if queue_id is not None:
        ids = [queue_id] if isinstance(queue_id, int) else queue_id
        given["queueId"] = ",".join(str(one) for one in ids)
    for name, offset in (("beginOffset", begin_offset), ("endOffset", end_offset)):
        if offset is not None:
            given[name] = str(offset)
    for name, time in (("beginTime", begin), ("endTime", end)):
        if time is not None:
            given[name] = str(to_ms(time, name, is_end=name.startswith("end")))
    given |= options or {}
    LogOptions.parse({"path": store_url, **given})  # raises here, before Spark does
    register(spark)
    return spark.read.format("tierdex-log").options(**given).load(store_url)
