"""The kernels that no door of tools/compile_kernels.py reaches, with the types that Python calls them with.

They run after a fault (an append that failed), for a file of an unusual form, or deep in an export.
tests/fileparts/kernels/test_built.py runs the doors and calls on a library that has these, too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from numba import types

from tierdex.fileparts.kernels.intrinsics import HAS_SSE42_CRC

if TYPE_CHECKING:
    from collections.abc import Callable

_I8, _U4, _U8 = types.int64, types.uint32, types.uint64
_FLAGS, _I4S, _I8S, _I8_ROWS, _U8_ROWS = (
    types.Array(dtype, dimensions, "C")
    for dtype, dimensions in (
        (types.boolean, 1), (types.int32, 1), (types.int64, 1), (types.int64, 2), (types.uint64, 2),
    )
)  # fmt: skip


# Kernels that Python names and that this kind of machine cannot run: their code does not compile here.
OF_OTHER_MACHINES: Final = (
    frozenset()
    if HAS_SSE42_CRC
    else frozenset({"tierdex.fileparts.kernels.checksum.crc32c_by_instruction"})
)


def _queue_table() -> Any:
    from tierdex.indexfile.kernels.row_scan import QueueTable

    return types.NamedTuple((_I8S, _I8, types.Array(_U8, 1, "C"), _I8S, _I8S, _I8S), QueueTable)


def _measure_arrays() -> Any:
    from tierdex.indexfile.kernels.row_scan import MeasureArrays

    return types.NamedTuple((_I8_ROWS, _U8_ROWS, _I8S, _queue_table()), MeasureArrays)


_CALLS: Final[dict[str, Callable[[], tuple[Any, ...]]]] = {
    "tierdex.app.http.codecs.kernels.row_text.write_rows": lambda: (_I8,) * 7,
    "tierdex.fileparts.kernels.checksum._numbered_state": lambda: (_U4, _U8),
    "tierdex.fileparts.kernels.checksum._step_by_table": lambda: (_U8, _U8),
    "tierdex.fileparts.kernels.checksum.crc32c_by_instruction": lambda: (_I8, _I8, _U4),
    "tierdex.fileparts.kernels.checksum.crc32c_by_table": lambda: (_I8, _I8, _U4),
    "tierdex.fileparts.kernels.fuse_filter.contains_each": lambda: (_I8,) * 4,
    "tierdex.fileparts.kernels.fuse_filter.partition_of": lambda: (_I8, _U8),
    "tierdex.indexfile.chained.kernels.batch_record.batch_length": lambda: (_I8S, _I8, _I8),
    "tierdex.indexfile.chained.kernels.item_rows.undo_links": lambda: (_I8S, _I8, _I8),
    "tierdex.indexfile.kernels.row_scan.measure_rows": lambda: (_I8, _I8, _I8, _measure_arrays()),
    "tierdex.log_service.kernels.keyed_rows.items_of_listed": lambda: (_I8S, _I8S, _I8, _I8),
    "tierdex.log_service.kernels.offsets.forget_places": lambda: (_I8S, _I8, _I8),
    "tierdex.logfile.grouped.kernels.directory.find_late_page": lambda: (_I8S, _I8S, _I8, _I8, _I8),
    "tierdex.logfile.grouped.kernels.page_columns.copy_pages": lambda: (
        _I8_ROWS, _I8S, _I4S, _I8S, _I4S, _I8, _I4S, _I8,
    ),
    "tierdex.logfile.grouped.kernels.page_columns.measure_pages": lambda: (_I8_ROWS, _I8_ROWS),
    "tierdex.logfile.grouped.kernels.page_read.expand_page": lambda: (_I8S, _I8, _I8),
    "tierdex.logfile.grouped.kernels.page_read.expanded_bytes": lambda: (_I8S,),
    "tierdex.logfile.journal.kernels.batch_record.batch_crc": lambda: (_I8, _I8, _U4, _I8, _I8),
    "tierdex.logfile.journal.kernels.places.gather_dense": lambda: (
        _I8S, _I8S, _I8_ROWS, _I8_ROWS, _I8,
    ),
    "tierdex.logfile.journal.kernels.scan.batch_length": lambda: (_I8S, _I8, _I8),
    "tierdex.logfile.journal.kernels.scan.list_rows": lambda: (_I8,) * 5,
    "tierdex.logfile.journal.kernels.sealed.dense_below": lambda: (_I8S, _I8S, _I8, _I8),
    "tierdex.logfile.kernels.extra_columns.measure_extras": lambda: (_I8, _I4S, _I8S),
    "tierdex.logfile.kernels.extra_columns.split_extras": lambda: (
        _I8, _I4S, _FLAGS, _I8S, types.UniTuple(_I4S, 2), types.UniTuple(_I4S, 4), types.UniTuple(_I8, 4),
    ),
    "tierdex.logfile.kernels.message_columns.first_longer": lambda: (_I8,) * 4,
}  # fmt: skip


def rare_calls() -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the dispatchers of these kernels with the types, compiled."""
    found = []
    for name, signature in _CALLS.items():
        if name in OF_OTHER_MACHINES:
            continue
        module, _, function = name.rpartition(".")
        dispatcher = getattr(importlib.import_module(module), function)
        dispatcher.compile(signature())
        found.append((dispatcher, signature()))
    return found
