"""Writes an immutable file front to back: bytes as they come, then parts, part table and footer.

Counts the position, so that every entry says where its part lies. Nothing is durable here: the caller
syncs what `write` took. One thread.

Depends on checksums, footer and layout.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.fileparts.checksums import checksum, unit_seed
from tierdex.fileparts.footer import PartEntry, encode_footer
from tierdex.fileparts.layout import FOOTER, FOOTER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import Buffer

    from tierdex.fileparts.layout import Part

NO_DETAILS: Final[Mapping[Part, int]] = MappingProxyType({})


class TailWriter:
    """One file that is being written. `position` is its length so far, `parts` those that are written."""

    def __init__(self, write: Callable[[Buffer], None], uuid: bytes) -> None:
        """`write` must be done with its argument when it returns: callers use buffers again."""
        self.position = 0
        self.parts: dict[Part, PartEntry] = {}
        self._write_out = write
        self._uuid = uuid

    def write(self, data: Buffer | np.ndarray) -> None:
        view = memoryview(data)  # type: ignore[arg-type]
        if view.nbytes:
            self._write_out(view)
            self.position += view.nbytes

    def write_tail(
        self,
        parts: Iterable[tuple[Part, Iterable[Buffer | np.ndarray]]],
        *,
        form: int,
        item_count: int,
        details: Mapping[Part, int] = NO_DETAILS,
    ) -> int:
        """Write parts, each in pieces, the part table and the footer; return the footer's checksum.

        `details` are the parts' own numbers. Pieces are asked for when those before are written.
        """
        for kind, pieces in parts:
            self.parts[kind] = self._write_part(kind, pieces, details.get(kind, 0))
        footer = encode_footer(
            form=form,
            uuid=self._uuid,
            item_count=item_count,
            parts=list(self.parts.values()),
            position=self.position,
        )
        self.write(footer)
        return int(np.frombuffer(footer[-FOOTER_BYTES:], FOOTER)["crc"][0])

    def _write_part(
        self, kind: Part, pieces: Iterable[Buffer | np.ndarray], detail: int
    ) -> PartEntry:
        """Write a part, padded to 8 bytes behind its end; return its entry."""
        position, crc = self.position, unit_seed(self._uuid, kind)
        for piece in pieces:
            crc = checksum(piece, crc)
            self.write(piece)
        length = self.position - position
        if length % 8:
            self.write(bytes(8 - length % 8))
        return PartEntry(kind, crc, position, length, detail)
