"""`verify`: every checksum and every invariant of every published file, one task a file.

Each node has a row too, since its manifest may be unreadable. The whole object is read, of an index or of a
log: header, pages, directory, filter, statistics, dictionaries; and it is compared with its manifest row.
Problems are words, one row a file. (`tierdex verify` also looks whether queues go on from file to file.)

Depends on snapshot, indexfile, compactor, lifecycle, log_service, job_store and numbered_tasks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tierdex.clock import SystemClock
from tierdex.compactor.merged_file import open_published
from tierdex.errors import TierdexError
from tierdex.indexfile import layout
from tierdex.indexfile.header import decode_header
from tierdex.indexfile.layout import Form
from tierdex.lifecycle.manifests.file_row import LOG_KIND, NOTES_KIND
from tierdex.lifecycle.topic_set import listed_topics
from tierdex.log_service.files.whole_object import check_object
from tierdex.log_service.notes.stored_notes import check_notes
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.numbered_tasks import numbered_frame
from tierdex.pipeline.jobs.snapshot import log_files_of, notes_of, read_store, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.nodes.node_reading import NodeReading
    from tierdex.storage_layer.base import Store

RESULT_DDL: Final = (
    "file_id string, node string, object_key string, item_count bigint, bytes bigint, "
    "is_sound boolean, problems array<string>"
)


def verify(
    spark: Any,
    store_url: str,
    *,
    nodes: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return a DataFrame with one row a node and one a published file; `problems` is empty when sound.

    Columns: RESULT_DDL. A node's row has the `file_id` "node:NAME", and null for object key and sizes.
    Lazy: files are read when it is acted on, each by a task of its own. A file or a manifest that
    cannot be read is a row with the reason, never an error. Raises NotFoundError when there is no
    manifest, and what listing the nodes raises.
    """
    from pyspark.sql import functions as F

    link = StoreLink.of(store_url, options)
    readings = read_store(link.open(), nodes)
    now_ms = SystemClock().now_ms()
    files = [
        *snapshot_of([each.state for each in readings], now_ms).files,
        *(file for each in readings for file in log_files_of(each.state, now_ms)),
        *(file for each in readings for file in notes_of(each.state)),
    ]
    manifests = [_node_row(reading) for reading in readings]

    def verify_one(number: int) -> bytes:
        if number >= len(files):
            return json.dumps(manifests[number - len(files)]).encode()
        problems = check_published(link.open(), files[number].row)
        file, row = files[number], files[number].row
        found = {
            "file_id": file.file_id,
            "node": file.node,
            "object_key": row.object_key,
            "item_count": row.item_count,
            "bytes": row.bytes,
            "is_sound": not problems,
            "problems": problems,
        }
        return json.dumps(found).encode()

    found = numbered_frame(spark, len(files) + len(manifests), verify_one)
    text = F.col("result").cast("string")
    return found.select(F.from_json(text, RESULT_DDL).alias("found")).select("found.*")


def _node_row(reading: NodeReading) -> dict[str, Any]:
    return {
        "file_id": f"node:{reading.node}",
        "node": reading.node,
        "object_key": None,
        "item_count": None,  # its files' rows have them: sums stay sums
        "bytes": None,
        "is_sound": reading.error is None,
        "problems": [] if reading.problem is None else [reading.problem],
    }


def check_published(store: Store, row: FileRow) -> list[str]:
    """Return the broken rules of an object, in words; empty when it is sound."""
    try:
        if row.kind == LOG_KIND:
            return check_object(store, row)
        if row.kind == NOTES_KIND:
            return check_notes(store, row)
        file = open_published(store, row)
        header = decode_header(
            store.get(row.object_key, 0, layout.HEADER_BYTES), row.object_key, form=Form.COMPACTED
        )
        problems = [] if header == file.header else ["the header differs from its copy in the tail"]
        said = {
            "items": (file.item_count, row.item_count),
            "first time": (file.min_time, row.min_time),
            "last time": (file.max_time, row.max_time),
            "topics": (listed_topics(file.topics), row.topics),
        }
        problems += [
            f"the manifest's {name} differ from the file's"
            for name, (found, listed) in said.items()
            if found != listed
        ]
        return problems + file.check()
    except (TierdexError, OSError) as error:
        return [str(error) or type(error).__name__]
