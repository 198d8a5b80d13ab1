"""The bytes of an entry that names its own source: rows indexed in place (`tierdex spark index`).

The register does not know how such a row was read. The row is shown only when the key or message ID
that was looked up occurs in it, so that a file that was changed or replaced since shows no wrong
row.

Depends on app.load.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from tierdex.app.load.parquet_rows import read_parquet_row

if TYPE_CHECKING:
    from tierdex.filesystem import FileSystem
    from tierdex.index_service.answer import Entry


def read_named_row(
    filesystem: FileSystem, entry: Entry, wanted: str
) -> tuple[bytes | None, str | None]:
    """Return (the row's text, None), or (None, why it cannot be shown).

    Raises InvalidRequestError when a Parquet file has no such row, OSError.
    """
    assert entry.source is not None
    path, place = Path(entry.source), entry.location or {}
    if "://" in entry.source or not path.is_absolute():
        return None, f"{entry.source} is no file of this machine"
    if not filesystem.exists(path):
        return None, f"{path} is gone"
    if "row" in place:
        table = read_parquet_row(path, int(place["row_group"]), int(place["row"]))
        text = orjson.dumps(table.to_pylist()[0], default=str)
    else:
        file = filesystem.open(path)
        try:
            text = file.read_at(int(place["offset"]), int(place["size"]))
        finally:
            file.close()
    if wanted.encode() not in text:
        return (
            None,
            f"the row in {path} does not hold the key: it was changed, or the key is computed",
        )
    return text, None
