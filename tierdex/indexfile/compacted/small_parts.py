"""The small parts of a sidecar, read without directory and filter: topics, dictionaries, what was added.

Two reads for any of them. Depends on fileparts, header, layout and schema.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.fileparts.footer import Footer, read_footer, read_part
from tierdex.fileparts.layout import FOOTER_BYTES, PART_COUNT_MAX, PART_ENTRY, Part
from tierdex.indexfile import layout
from tierdex.indexfile.header import decode_header
from tierdex.indexfile.layout import Form
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Callable


TABLE_BYTES_MAX: Final = FOOTER_BYTES + PART_COUNT_MAX * PART_ENTRY.itemsize


class TopicRow(NamedTuple):
    """What a compacted file says of one of its topics. Times are int64 ms."""

    topic: str
    item_count: int
    min_time: int
    max_time: int


def read_topics(
    read_at: Callable[[int, int], bytes], *, position: int, file_bytes: int, crc: int, name: object
) -> list[TopicRow]:
    """Return what a compacted file says of its topics whose tail begins at `position`, by two reads.

    Neither directory nor filter is read. `crc` is the footer's, by which the file is known. Raises
    CorruptFileError and what `read_at` raises.
    """
    footer, parts = read_small_parts(
        read_at, position=position, file_bytes=file_bytes, crc=crc, name=name
    )
    dictionaries = _dictionaries_of(footer, parts, name)
    try:
        rows = np.frombuffer(read_part(parts, footer, Part.TOPICS, name), layout.TOPIC)
    except ValueError as error:
        raise CorruptFileError(name, str(error)) from error
    if len(rows) != len(dictionaries.strings(TOPIC_DICTIONARY)):
        raise CorruptFileError(name, "dictionaries and topics disagree")
    return topics_used(dictionaries, rows)


def read_dictionaries(
    read_at: Callable[[int, int], bytes], *, position: int, file_bytes: int, crc: int, name: object
) -> Dictionaries:
    """Return the dictionaries of a compacted file; as `read_topics`."""
    footer, parts = read_small_parts(
        read_at, position=position, file_bytes=file_bytes, crc=crc, name=name
    )
    return _dictionaries_of(footer, parts, name)


def _dictionaries_of(
    footer: Footer, parts: Callable[[int, int], bytes], name: object
) -> Dictionaries:
    data = read_part(parts, footer, Part.HEADER_COPY, name)
    header = decode_header(data.ljust(layout.HEADER_BYTES, b"\0"), name, form=Form.COMPACTED)
    dictionaries = Dictionaries(header.schema.dictionary_names)
    try:
        dictionaries.load(read_part(parts, footer, Part.DICTIONARIES, name))
    except ValueError as error:
        raise CorruptFileError(name, str(error)) from error
    return dictionaries


def read_extra(
    read_at: Callable[[int, int], bytes], *, position: int, file_bytes: int, crc: int, name: object
) -> dict[str, Any]:
    """Return what was added to the statistics of a compacted file; as `read_topics`."""
    footer, parts = read_small_parts(
        read_at, position=position, file_bytes=file_bytes, crc=crc, name=name
    )
    return extra_of(read_part(parts, footer, Part.EXTRA, name), name)


def extra_of(data: bytes, name: object) -> dict[str, Any]:
    """Return what was added to the statistics, as its part has it. Raises CorruptFileError."""
    try:
        extra = json.loads(data)
    except ValueError as error:
        raise CorruptFileError(name, f"extra statistics: {error}") from error
    if not isinstance(extra, dict):
        raise CorruptFileError(name, "extra statistics are not an object")
    return extra


def read_small_parts(
    read_at: Callable[[int, int], bytes], *, position: int, file_bytes: int, crc: int, name: object
) -> tuple[Footer, Callable[[int, int], bytes]]:
    """Return a compacted file's footer and a way to read its parts in front of the directory.

    Sends two reads; the returned one sends none. `crc` is the footer's, by which the file is known.
    Raises CorruptFileError and what `read_at` raises.
    """
    behind = max(position, file_bytes - TABLE_BYTES_MAX)
    footer = read_footer(_within(read_at, behind, file_bytes, name), file_bytes, name)
    if footer.form != Form.COMPACTED or footer.crc != crc:
        raise CorruptFileError(name, "is another file than the one that was asked for")
    end = footer.part(Part.DIRECTORY, name).position
    return footer, _within(read_at, position, end, name)


def _within(
    read_at: Callable[[int, int], bytes], begin: int, end: int, name: object
) -> Callable[[int, int], bytes]:
    """Read [begin, end) at once; return what reads in there."""
    data = read_at(begin, max(0, end - begin))

    def read(position: int, length: int) -> bytes:
        if position < begin or position + length > end:
            raise CorruptFileError(name, "a part lies where none may be")
        return data[position - begin : position - begin + length]

    return read


def topics_used(dictionaries: Dictionaries, topic_rows: np.ndarray) -> list[TopicRow]:
    """Return the topics that have items."""
    names = dictionaries.strings(TOPIC_DICTIONARY)
    used = np.flatnonzero(topic_rows["item_count"])
    return [TopicRow(names[i], *topic_rows[i].tolist()) for i in used.tolist()]
