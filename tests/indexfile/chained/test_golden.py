"""Golden files of format version 1, committed once, never written again: every later program reads them.

compatibility-sensitive: a failure here means that files in the field cannot be read any more.
`v1_chained_unsealed.tdx` is as a killed writer leaves it, `v1_chained.tdx` the same file sealed.
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.indexfile.chained_files import FILESYSTEM, key, message_id
from tests.indexfile.searches import find_all
from tierdex.indexfile.chained.file import ChainedFile

DATA = Path(__file__).parents[2] / "data"
EXPECTED = json.loads((DATA / "v1_chained.json").read_text())
DIGESTS = {
    "v1_chained.tdx": "147c6d79710014fc925351edf58c6bca65e12fcac074e377d6d3679fc70650bc",
    "v1_chained_unsealed.tdx": "276f8e61d797fd55df7fdfebaf0d09da9e2de38a73ade92bdf29f6d922043067",
}


def open_golden(form: str, folder: Path) -> ChainedFile:
    if form == "sealed":
        return ChainedFile.open_sealed(FILESYSTEM, DATA / "v1_chained.tdx")
    if form == "reader":
        return ChainedFile.open_for_reading(FILESYSTEM, DATA / "v1_chained_unsealed.tdx")
    copy = folder / "copy"
    shutil.copyfile(DATA / "v1_chained_unsealed.tdx", copy)
    return ChainedFile.recover(FILESYSTEM, copy)


@pytest.mark.parametrize("name", DIGESTS)
def test_golden_file_was_never_regenerated(name):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == DIGESTS[name]


@pytest.mark.parametrize("form", ["sealed", "reader", "recovered"])
def test_golden_file_gives_the_answers_of_its_day(form, tmp_path):
    file = open_golden(form, tmp_path)
    assert file.uuid.hex() == EXPECTED["uuid"]
    assert (file.item_count, file.slot_count) == (EXPECTED["item_count"], EXPECTED["slot_count"])
    assert (file.min_time, file.max_time) == (EXPECTED["min_time"], EXPECTED["max_time"])
    ends = {(topic, queue): end for topic, queue, end in EXPECTED["end_offsets"]}
    assert file.end_offsets() == ends
    for wanted in EXPECTED["lookups"]:
        by_key = wanted["message_id"] is None
        lookup = key(wanted["key"], wanted["topic"]) if by_key else message_id(wanted["message_id"])
        assert str(lookup.key_hash) == wanted["key_hash"]
        found = [
            {"topic": file.topics[int(row["tag"]) & 0x7FFFFFFF]}
            | {name: int(row[name]) for name in ("queue_id", "offset", "size", "timestamp")}
            for row in find_all(file, lookup)
        ]
        assert found == wanted["found"]
    assert file.check() == []
    file.close()
