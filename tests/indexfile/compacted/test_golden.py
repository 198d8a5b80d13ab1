"""The golden compacted file of format version 1, committed once, never written again.

compatibility-sensitive: a failure here means that files in the field cannot be read any more.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.indexfile.chained_files import FILESYSTEM, key, message_id
from tests.indexfile.compacted_files import found, remote
from tierdex.indexfile.compacted.file import CompactedFile

DATA = Path(__file__).parents[2] / "data"
GOLDEN = DATA / "v1_compacted.tdx"
EXPECTED = json.loads((DATA / "v1_compacted.json").read_text())
DIGEST = "1ae1d412efdc369cd214b3bccdf324b95bdb5dc260caeab9acaa93da9797805e"


def test_golden_file_was_never_regenerated():
    assert hashlib.sha256(GOLDEN.read_bytes()).hexdigest() == DIGEST


@pytest.mark.parametrize("form", ["mapped", "remote"])
def test_golden_file_gives_the_answers_of_its_day(form):
    file = CompactedFile.open_local(FILESYSTEM, GOLDEN)
    if form == "remote":
        file = remote(GOLDEN.read_bytes())
    assert file.uuid.hex() == EXPECTED["uuid"]
    assert (file.item_count, file.slot_count) == (EXPECTED["item_count"], EXPECTED["slot_count"])
    assert (file.min_time, file.max_time) == (EXPECTED["min_time"], EXPECTED["max_time"])
    assert file.end_offsets() == {(t, q): end for t, q, end in EXPECTED["end_offsets"]}
    assert file.extra == EXPECTED["extra"]
    names = file.dictionaries.strings("topic")
    for wanted in EXPECTED["lookups"]:
        by_key = wanted["message_id"] is None
        lookup = key(wanted["key"], wanted["topic"]) if by_key else message_id(wanted["message_id"])
        assert str(lookup.key_hash) == wanted["key_hash"]
        answer = [
            {"topic": names[int(row["tag"]) & 0x7FFFFFFF]}
            | {name: int(row[name]) for name in ("queue_id", "offset", "size", "timestamp")}
            for row in found(file, lookup)
        ]
        assert answer == wanted["found"]
    if form == "mapped":
        assert file.check() == []


def test_golden_file_is_walked_whole():
    file = CompactedFile.open_local(FILESYSTEM, GOLDEN)
    rows = np.concatenate(list(file.rows_in_hash_order(100)))
    assert len(rows) == EXPECTED["item_count"]
    assert (np.diff(rows["key_hash"].astype(object)) >= 0).all()
