"""Whether a loaded file is still what it was when it was loaded, and what time a row of it had then.

The register has what the file was: size, time of the last change, and a digest, of a Parquet file whole, of a
text up to where it was read (what is appended later changes nothing)::

    size and time are the same                      it is the same
    a digest is known, of 64 MiB at most            as the digest says; remembered for this size and time
    else                                            not known: the row's key and time alone tell

Depends on the other modules of this folder, files, resolving and xxhash.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Final

import xxhash

from tierdex.files.object_file import RangeFile
from tierdex.files.row_templates import Template, milliseconds
from tierdex.resolving.resolver import ChangedError
from tierdex.resolving.unfolded_text import UnfoldedText, codec_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tierdex.app.load.register import LoadedFile

_DIGEST_BYTES_MOST: Final = 64 << 20
_READ_BYTES: Final = 4 << 20
_KNOWN_MOST: Final = 1000


class LoadedFiles:
    """Tells files that were replaced. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], bool | None] = {}

    def check(self, loaded: LoadedFile, file: RangeFile) -> None:
        """Raise ChangedError for a file that is another one than was loaded."""
        reached = loaded.reached
        if reached is None:
            return
        now = (loaded.path, reached, file.length, file.changed_ms)
        with self._lock:
            is_same = self._known.get(now)
            is_known = now in self._known
        if not is_known:
            is_same = is_unchanged(loaded, file, _DIGEST_BYTES_MOST)
            with self._lock:
                if len(self._known) >= _KNOWN_MOST:
                    self._known.pop(next(iter(self._known)))
                self._known[now] = is_same
        if is_same is None and _time_of(loaded) is None:
            # No digest, and no time of its own in a row: a file that did not grow was written anew.
            is_same = reached.changed_ms < 0 or file.length > reached.size
        if is_same is False:
            raise ChangedError("it is another file now: load it again")


def check_time(loaded: LoadedFile, table: pa.Table, timestamp: int) -> None:
    """Raise ChangedError for a row that has another time than its entry, by the rule that indexed it."""
    time = _time_of(loaded)
    if time is not None and int(milliseconds(time, table, _said(loaded)[2])[0]) != timestamp:
        raise ChangedError("the row has another time")


def time_columns(loaded: LoadedFile) -> list[str]:
    """Return the columns that give a row its time; none where the file gives it."""
    time = _time_of(loaded)
    return [] if time is None else list(time.columns)


def _time_of(loaded: LoadedFile) -> Template | None:
    text = _said(loaded)[1]
    return None if text is None else Template.parse(text, field="timestamp")


def _said(loaded: LoadedFile) -> list[str | None]:
    """Return topic, time, time zone and queue, as the load's options said them (`LoadOptions.how`)."""
    return json.loads(loaded.how) if loaded.how else [None] * 4


def is_unchanged(loaded: LoadedFile, file: RangeFile, most_bytes: int) -> bool | None:
    """Return whether a file is the one that was loaded, or that with more; None: nothing tells.

    For a digest at most so many bytes are read.
    """
    reached = loaded.reached
    if reached is None:
        return None
    if (file.length, file.changed_ms) == (reached.size, reached.changed_ms):
        return True
    is_parquet = loaded.kind == "parquet"
    if is_parquet and file.length != reached.size:
        return False
    end = file.length if is_parquet else reached.position
    if not reached.digest or not 0 < end <= most_bytes:
        return None
    codec = None if is_parquet else codec_of(loaded.path)
    whole = RangeFile(file.read_at, file.length)  # the reader of a row closes the file that it read
    text = whole if codec is None else UnfoldedText.of_file(whole, codec, loaded.path)
    digest = xxhash.xxh3_128()
    for position in range(0, end, _READ_BYTES):
        digest.update(text.read_at(position, min(_READ_BYTES, end - position)))
    return digest.hexdigest() == reached.digest
