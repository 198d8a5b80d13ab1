"""The immutable end of a sealed chained file: dictionaries, statistics, block checksums, footer.

    | HEADER | slots | rows, padded to 4096 | dictionaries | statistics | block checksums | FOOTER |

A block is 4 KiB; block 0 begins at slot 0. Everything from the slots to the last row has a block's
checksum, everything after it a part's. Depends on fileparts, batch_statistics, view, header, layout
and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.fileparts.footer import Footer, encode_footer, make_part, read_footer, read_part
from tierdex.fileparts.kernels.checksum import block_checksums
from tierdex.fileparts.layout import BLOCK_BYTES, Part, round_up
from tierdex.indexfile import layout
from tierdex.indexfile.chained.batch_statistics import SealedStatistics
from tierdex.indexfile.chained.view import BlockChecksums
from tierdex.indexfile.layout import Form

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.indexfile.chained.batch_statistics import BatchStatistics
    from tierdex.indexfile.header import FileHeader


class SealedParts(NamedTuple):
    """What a sealed file says after its rows."""

    footer: Footer
    statistics: SealedStatistics
    dictionaries: Dictionaries
    blocks: BlockChecksums


def rows_end(header: FileHeader, row_count: int) -> int:
    """Return where the parts begin: the end of the last row, rounded up to a block."""
    used = layout.rows_position(header.slot_count) + row_count * header.schema.item_bytes
    return round_up(used, BLOCK_BYTES)


def encode_tail(
    header: FileHeader, data: np.ndarray, statistics: BatchStatistics, dictionaries: Dictionaries
) -> bytes:
    """Return everything that a sealed file has after its rows; `data` is the file from byte 0."""
    position = end = rows_end(header, statistics.next_row - 1)
    blocks = (end - layout.HEADER_BYTES) // BLOCK_BYTES
    sums = np.empty(blocks, np.uint32)
    block_checksums(
        data.ctypes.data + layout.HEADER_BYTES,
        BLOCK_BYTES,
        blocks,
        np.uint32(part_seed(header.uuid, Part.BLOCK_CHECKSUMS)),
        sums.ctypes.data,
    )
    parts, pieces = [], []
    for kind, piece, detail in (
        (Part.DICTIONARIES, dictionaries.encode(), len(dictionaries.names)),
        (Part.STATISTICS, statistics.sealed().encode(), 0),
        (Part.BLOCK_CHECKSUMS, sums.tobytes(), blocks),
    ):
        parts.append(make_part(kind, header.uuid, piece, position, detail))
        pieces.append(piece)
        position += len(piece)
    pieces.append(
        encode_footer(
            form=Form.CHAINED,
            uuid=header.uuid,
            item_count=statistics.items,
            parts=parts,
            position=position,
        )
    )
    return b"".join(pieces)


def read_tail(
    read_at: Callable[[int, int], bytes], file_bytes: int, header: FileHeader, path: object
) -> SealedParts:
    """Return the verified end of a sealed file. Raises CorruptFileError."""
    footer = read_footer(read_at, file_bytes, path, uuid=header.uuid)
    if footer.form != Form.CHAINED:
        raise CorruptFileError(path, "header and footer name different forms")
    statistics = SealedStatistics.decode(read_part(read_at, footer, Part.STATISTICS, path), path)
    if not 0 <= statistics.item_count <= statistics.row_count <= header.row_capacity:
        raise CorruptFileError(path, f"implausible row count {statistics.row_count}")
    if statistics.item_count != footer.item_count:
        raise CorruptFileError(path, "footer and statistics count different items")
    end = rows_end(header, statistics.row_count)
    if footer.part(Part.DICTIONARIES, path).position != end:
        raise CorruptFileError(path, f"rows end at {end}, the parts begin elsewhere")
    dictionaries = Dictionaries(header.schema.dictionary_names)
    try:
        dictionaries.load(read_part(read_at, footer, Part.DICTIONARIES, path))
    except ValueError as error:
        raise CorruptFileError(path, str(error)) from error
    data = read_part(read_at, footer, Part.BLOCK_CHECKSUMS, path)
    blocks = (end - layout.HEADER_BYTES) // BLOCK_BYTES
    if len(data) != 4 * blocks:
        raise CorruptFileError(path, f"{len(data)} bytes of checksums for {blocks} blocks")
    sums = np.frombuffer(data, np.uint32)
    seed = part_seed(header.uuid, Part.BLOCK_CHECKSUMS)
    checksums = BlockChecksums(sums, np.zeros(blocks, np.uint8), seed)
    return SealedParts(footer, statistics, dictionaries, checksums)
