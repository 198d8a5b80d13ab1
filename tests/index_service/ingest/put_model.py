"""What the kernels of puts do, as a person would write it: a row for each key, one for the message ID."""

from __future__ import annotations

from tierdex.indexfile.hashing import MESSAGE_ID_SEED, seeded_hash, topic_seed
from tierdex.indexfile.layout import KIND_BIT
from tierdex.indexfile.schema import MESSAGE_SCHEMA


def rows_of(entry, tag=0) -> bytes:
    """Return the rows of a checked entry; `tag` is the number of its topic."""
    topic, keys, message_id, *location = entry
    names = [(seeded_hash(key, topic_seed(topic)), tag) for key in keys]
    if message_id is not None:
        names.append((seeded_hash(message_id, MESSAGE_ID_SEED), KIND_BIT | tag))
    pack = MESSAGE_SCHEMA.packer().pack
    return b"".join(pack(key_hash, 0, its_tag, *location) for key_hash, its_tag in names)
