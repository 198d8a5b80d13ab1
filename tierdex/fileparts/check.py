"""What the verification of every file shares: opening it, its parts and what lies between them.

Depends on checksums, footer and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum, unit_seed

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tierdex.fileparts.footer import Footer


class Checked(Protocol):
    """An open file that can be verified."""

    def check(self) -> list[str]: ...
    def close(self) -> None: ...


def find_faults(open_file: Callable[[], Checked]) -> list[str]:
    """Return every broken rule of a file in words; empty means it is sound. Raises OSError."""
    try:
        opened = open_file()
    except CorruptFileError as error:
        return [error.reason]
    try:
        return opened.check()
    except CorruptFileError as error:
        return [error.reason]
    finally:
        opened.close()


def part_faults(tail: np.ndarray, position: int, footer: Footer, uuid: bytes) -> list[str]:
    """Compare the checksum of every part, and the zero bytes between parts.

    `tail` (u1) are the file's bytes from `position` on, where the first part begins.
    """
    faults = []
    end = position
    for entry in sorted(footer.parts.values(), key=lambda entry: entry.position):
        name = entry.kind.name.lower().replace("_", " ")
        start = entry.position - position
        data = tail[start : start + entry.length]
        if checksum(data, unit_seed(uuid, entry.kind)) != entry.crc:
            faults.append(f"checksum of part {name} differs")
        between = tail[max(0, end - position) : start]
        if entry.position < end or len(between) >= 8 or between.any():
            faults.append(f"part {name} does not follow the one before")
        end = entry.position + entry.length
    return faults
