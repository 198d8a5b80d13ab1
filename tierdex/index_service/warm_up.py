"""Loads the kernels of lookups, and the modules of batches, before the first lookup needs them.

A kernel is loaded from numba's cache, or compiled, at its first call. That takes some tenths of a
second, better spent while a server starts. A lookup in a file of one row, in memory, calls them
all.

Depends on fileparts, batch and indexfile.
"""

from __future__ import annotations

import numpy as np

from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.writer import CompactedWriter, FilePlan
from tierdex.indexfile.hashing import key_hash
from tierdex.indexfile.lookup import Search
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY


def warm_up() -> None:
    """Look up one key in a compacted file of one row, singly and in a batch; import the batch modules."""
    from tierdex.index_service.batch import batch_queries  # noqa: F401 (its import is wanted)

    dictionaries = Dictionaries(MESSAGE_SCHEMA.dictionary_names)
    dictionaries.stage(TOPIC_DICTIONARY, ["warm"])
    dictionaries.keep()
    rows = np.zeros(1, MESSAGE_SCHEMA.dtype)
    rows["key_hash"] = key_hash("warm", "up")
    data = bytearray()
    writer = CompactedWriter(
        data.extend,  # type: ignore[arg-type]
        FilePlan(
            uuid=bytes(16),
            schema=MESSAGE_SCHEMA,
            dictionaries=dictionaries,
            slot_count=1,
            bounds=RowBounds.measure(MESSAGE_SCHEMA, [rows]),
            expected_items=1,
        ),
        filter_bits=16,
        created_ms=0,
    )
    writer.append(rows)
    summary = writer.finish()
    tail = bytes(data[summary.sidecar_position :])
    file = CompactedFile.from_sidecar(tail, position=summary.sidecar_position)
    assert file.may_contain(int(rows["key_hash"][0]))
    assert file.may_contain_many(rows["key_hash"]).all()
    wanted = Search.of(rows["key_hash"], 0)
    ((first, last),) = file.plan_pages(wanted).tolist()
    span = file.span(first, last - first + 1)
    pages = bytes(data[span.position : span.position + span.length])
    assert len(file.search_span(span, pages, wanted).rows) == 1
