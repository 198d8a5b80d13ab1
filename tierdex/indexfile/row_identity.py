"""Which entry a row is, in 128 bits that are the same in every form of a file: its fingerprint.

Equal are rows with the same topic, the same location's fields and the same time, whatever their files'
dictionaries are. The key is no part of it.

Depends on kernels.fingerprint, hashing, layout and schema.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from tierdex.indexfile.hashing import signed_bits
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.schema import Schema


def fingerprints(values: np.ndarray) -> np.ndarray:
    """Return 128 bits (u8[n, 2]) for each row of `values` (u8[n, c]): topic, the fields, the time.

    Strings come as `text_number`, numbers by their bits.
    """
    from tierdex.indexfile.kernels.fingerprint import mix_rows  # numba loads only when needed

    found = np.empty((len(values), 2), np.uint64)
    mix_rows(values, found)
    return found


def message_fingerprint(topic: str, offset: int, size: int, queue_id: int, time: int) -> bytes:
    """Return the 16 bytes of one message's fingerprint."""
    from tierdex.indexfile.kernels.fingerprint import load_mix_message

    halves = load_mix_message()(signed_bits(text_number(topic)), offset, size, queue_id, time)
    return b"".join(half.to_bytes(8, "little", signed=True) for half in halves)


def row_fingerprints(schema: Schema, dictionaries: Dictionaries, rows: np.ndarray) -> np.ndarray:
    """Return the fingerprints (u8[n, 2]) of rows of one file, with no object a row."""
    topics = dictionaries.strings(TOPIC_DICTIONARY)
    columns = [_text_numbers(topics, rows["tag"] & np.uint32(TOPIC_MASK))]
    for field in schema.fields:
        values = rows[field.name]
        if field.dictionary:
            columns.append(_text_numbers(dictionaries.strings(field.name), values))
        else:
            wide = np.int64 if values.dtype.kind == "i" else np.uint64
            columns.append(values.astype(wide).view(np.uint64))
    columns.append(np.ascontiguousarray(rows["timestamp"]).view(np.uint64))
    return fingerprints(np.column_stack(columns))


@lru_cache(maxsize=4096)
def text_number(text: str) -> int:
    """Return 64 bits that stand for a string in fingerprints."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _text_numbers(strings: Sequence[str], indices: np.ndarray) -> np.ndarray:
    """Return the numbers (u8) of `strings[indices]`; only those that occur are hashed."""
    used, places = np.unique(indices, return_inverse=True)
    numbers = np.array([text_number(strings[index]) for index in used.tolist()], np.uint64)
    return numbers[places]
