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
from tierdex.fileparts.layout import Part
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.hash_group import GroupPlaces, HashGroup
from tierdex.indexfile.lookup import Search

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


GROUPS = DATA / "v1_hash_groups.tdx"
GROUPS_EXPECTED = json.loads((DATA / "v1_hash_groups.json").read_text())
GROUPS_DIGEST = "b24db688e06359c9848fad41d6689633408dd9e2e5985a19754d710e478cbf6e"


def test_golden_hash_groups_give_the_answers_of_their_day():
    data, expected = GROUPS.read_bytes(), GROUPS_EXPECTED
    assert hashlib.sha256(data).hexdigest() == GROUPS_DIGEST
    whole = CompactedFile.from_bytes(data)
    assert whole.check() == []
    assert list(whole.groups) == expected["groups"]
    places, begin = GroupPlaces(*expected["groups"]), expected["sidecar_position"]

    def group_of(key_hash):
        number = key_hash * places.group_count >> 64
        first = places.position + number * places.stride
        more = {
            "uuid": bytes.fromhex(expected["uuid"]),
            "number": number,
            "count": places.group_count,
        }
        more |= {"pages_end": begin, "name": "group"}
        group = HashGroup(data[first : first + places.stride], **more)
        if group.has_entries:
            return group
        at = group.parts[Part.DIRECTORY].position + 32 * group.first_page
        entries = data[at : at + 32 * group.entry_count]
        return HashGroup(data[first : first + places.stride], entries=entries, **more)

    for text, rows in expected["found"].items():
        group = group_of(int(text))
        assert group.may_contain(int(text))
        head = CompactedFile.from_head(
            data[begin : places.head_end], group, position=begin, file_bytes=len(data),
            item_count=expected["item_count"], name="head",
        )  # fmt: skip
        answer = [
            [int(row["tag"]), int(row["offset"]), int(row["timestamp"])]
            for kind_and_topic in sorted({tag for tag, _, _ in rows})
            for row in fetched(head.through(group), data, int(text), kind_and_topic)
        ]
        assert sorted(answer) == sorted(rows)
    assert not any(group_of(int(text)).may_contain(int(text)) for text in expected["absent"])


def fetched(file, data, key_hash, tag):
    """Return all rows of one hash and tag, from fetched pages."""
    wanted = Search.of([key_hash], tag, limit=10_000)
    ((first, last),) = file.plan_pages(wanted, 1 << 40).tolist()
    span = file.span(first, last - first + 1)
    return file.search_span(span, data[span.position : span.position + span.length], wanted).rows
