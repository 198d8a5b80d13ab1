"""Writes an immutable file front to back: bytes as they come, then parts, part table and footer.

Counts the position, so that every entry says where its part lies. Nothing is durable here: the caller
syncs what `write` took. One thread.

Depends on checksums, footer and layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.fileparts.checksums import checksum, unit_seed
from tierdex.fileparts.footer import PartEntry, encode_footer
from tierdex.fileparts.layout import FOOTER, FOOTER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Buffer

    from tierdex.fileparts.layout import Part


class TailWriter:
    """One file that is being written. `position` is its length so far."""

    def __init__(self, write: Callable[[Buffer], None], uuid: bytes) -> None:
        """`write` must be done with its argument when it returns: callers use buffers again."""
        self.position = 0
        self._write_out = write
        self._uuid = uuid

    def write(self, data: Buffer | np.ndarray) -> None:
        view = memoryview(data)  # type: ignore[arg-type]
        if view.nbytes:
            self._write_out(view)
            self.position += view.nbytes

    def write_tail(
        self,
        parts: Iterable[tuple[Part, Sequence[Buffer | np.ndarray]]],
        *,
        form: int,
        item_count: int,
    ) -> int:
        """Write parts, each in pieces, the part table and the footer; return the footer's checksum."""
        entries = [self._write_part(kind, pieces) for kind, pieces in parts]
        footer = encode_footer(
            form=form,
            uuid=self._uuid,
            item_count=item_count,
            parts=entries,
            position=self.position,
        )
        self.write(footer)
        return int(np.frombuffer(footer[-FOOTER_BYTES:], FOOTER)["crc"][0])

    def _write_part(self, kind: Part, pieces: Sequence[Buffer | np.ndarray]) -> PartEntry:
        """Write a part, padded to 8 bytes behind its end; return its entry."""
        position, crc = self.position, unit_seed(self._uuid, kind)
        for piece in pieces:
            crc = checksum(piece, crc)
            self.write(piece)
        length = self.position - position
        if length % 8:
            self.write(bytes(8 - length % 8))
        return PartEntry(kind, crc, position, length)
