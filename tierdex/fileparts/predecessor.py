"""What a file being written knows of the one before it: the last 64 bytes of its header.

A writer goes on in the next file before the one before is durable. After a power cut the disk may have
the newer file's batches and not the older one's last: then the newer file holds what was put after
something that is lost, and what survives would be no prefix. This record tells: it says how many
batches the older file had, and with which checksum they ended, when the newer one took over.

It is written once, when the file begins, into one sector of the mapping, and is durable with the first
`sync` of the file. Nothing acknowledged lies in a file whose record is lost.

Depends on layout and checksums.
"""

from __future__ import annotations

from typing import NamedTuple

import google_crc32c
import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts import layout
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.layout import UUID_BYTES, Part


class Predecessor(NamedTuple):
    """Where the batches of a file end. `NO_PREDECESSOR`: no file was being written."""

    uuid: bytes
    batch_count: int
    batch_crc: int


NO_PREDECESSOR = Predecessor(bytes(UUID_BYTES), 0, 0)


def encode_predecessor(predecessor: Predecessor, uuid: bytes) -> bytes:
    """Return the record's 64 bytes in the header of the file `uuid`."""
    record = np.zeros((), layout.PREDECESSOR)
    record["magic"] = layout.PREDECESSOR_MAGIC
    record["uuid"] = np.void(predecessor.uuid)
    record["batch_count"], record["batch_crc"] = predecessor.batch_count, predecessor.batch_crc
    record["crc"] = google_crc32c.extend(part_seed(uuid, Part.PREDECESSOR), record.tobytes())
    return record.tobytes()


def decode_predecessor(header: bytes, uuid: bytes, path: object) -> Predecessor | None:
    """Return the record in a header's 4096 bytes, None when none was written. CorruptFileError."""
    data = bytes(header[layout.PREDECESSOR_POSITION : layout.HEADER_BYTES])
    if not data.strip(b"\0"):
        return None
    record = np.frombuffer(data, layout.PREDECESSOR, 1)[0]
    found = Predecessor(bytes(record["uuid"]), int(record["batch_count"]), int(record["batch_crc"]))
    if encode_predecessor(found, uuid) != data:
        raise CorruptFileError(path, "the predecessor's record in the header does not verify")
    return found
