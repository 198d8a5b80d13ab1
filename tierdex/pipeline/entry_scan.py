"""`entries`: a scan of the entries that its arguments select.

The selection is part of the relation, like the options of `spark.read`: no other plan inherits what
it prunes.

Depends on registration, options and times.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tierdex.pipeline.jobs.options import ReadOptions
from tierdex.pipeline.registration import register
from tierdex.times import to_ms

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence


def entries(
    spark: Any,
    store_url: str,
    *,
    topic: str | Sequence[str] | None = None,
    keys: str | Sequence[str] | None = None,
    message_ids: str | Sequence[str] | None = None,
    begin: int | str | datetime.datetime | None = None,
    end: int | str | datetime.datetime | None = None,
    nodes: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    on_error: str = "fail",
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return the entries of these keys of one topic, of these message IDs, topics, times, nodes.

    An argument that is None selects everything. Times are inclusive: milliseconds, RFC 3339, or
    datetimes with a zone. The arguments prune files, filters and pages, as the options of the same
    names of ``spark.read.format("tierdex")`` do; with `keys` or `message_ids` there is a column
    `key` or `message_id`. Spark evaluates a condition of a later `where` on each row of this scan.

    Lazy; the first query takes the snapshot, which is kept. Raises InvalidRequestError.
    """
    lists = {
        "topic": topic,
        "keys": keys,
        "messageIds": message_ids,
        "nodes": nodes,
        "columns": columns,
    }
    chosen = {name: listed(value) for name, value in lists.items() if value is not None}
    for name, time in (("beginTime", begin), ("endTime", end)):
        if time is not None:
            chosen[name] = str(to_ms(time, name, is_end=name.startswith("end")))
    chosen |= {"onError": on_error, **(options or {})}
    ReadOptions.parse({"path": store_url, **chosen})  # raises here, before Spark does
    register(spark)
    return spark.read.format("tierdex").options(**chosen).load(store_url)


def listed(names: str | Sequence[str]) -> str:
    """Return names as an option's JSON list: a key may hold a comma, and spaces at its ends."""
    return json.dumps([names] if isinstance(names, str) else list(names))
