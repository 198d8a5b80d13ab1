"""CRC32C seeds: which checksum belongs to which place.

Every checksum of a file starts from (file uuid, part, number), so that the right bytes in the wrong
place, or in another file, fail. Depends on layout and google_crc32c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

    from tierdex.fileparts.layout import Part


def part_seed(uuid: bytes, part: Part) -> int:
    """Return the seed of all units of `part`; a kernel continues it over each unit's number."""
    return int(google_crc32c.extend(0, uuid + int(part).to_bytes(4, "little")))


def unit_seed(uuid: bytes, part: Part, number: int = 0) -> int:
    """Return the seed of unit `number` of `part` (kernels: `numbered_seed(part_seed, number)`)."""
    return int(google_crc32c.extend(part_seed(uuid, part), number.to_bytes(8, "little")))


def checksum(data: Buffer | np.ndarray, seed: int) -> int:
    """Return the CRC32C of `data` continued from `seed`; numpy arrays are not copied."""
    return int(google_crc32c.extend(seed, data))
