import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lifecycle import strategies as own
from tests.lifecycle.manifests.test_manifest import EMPTY, make_commit
from tests.lifecycle.rows import NOW_MS, make_log, make_row
from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.lifecycle.garbage import plan_garbage
from tierdex.lifecycle.manifests import manifest_codec as codec
from tierdex.lifecycle.manifests import row_codec
from tierdex.lifecycle.manifests.applied_commit import apply, with_checkpoint
from tierdex.lifecycle.manifests.file_row import LOG_KIND, HashRange
from tierdex.lifecycle.manifests.forgotten import AskedHash, Forgetting
from tierdex.lifecycle.manifests.live_record import LiveRecord, pack_live
from tierdex.lifecycle.manifests.manifest import (
    Change,
    Draft,
    Hint,
    NodeKind,
    RemoveReason,
    Tombstone,
)
from tierdex.lifecycle.topic_set import listed_topics
from tierdex.storage_layer.base import StoredObject
from tierdex.storage_layer.memory import MemoryStore


def decode(data, number=1):
    return codec.decode_manifest(data, key="k", node="n1", number=number)


@pytest.fixture
def encoded():
    return codec.encode_commit(make_commit(EMPTY, Change(add=(make_row(1),))))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_commit_is_decoded_back(data):
    state = data.draw(own.states())
    commit = data.draw(own.commits_after(state))
    if data.draw(st.booleans()):
        commit = with_checkpoint(state, commit)
    found = codec.decode_manifest(
        codec.encode_commit(commit), key="k", node=commit.node, number=commit.number
    )
    assert found == commit


def test_every_flipped_bit_of_a_commit_is_detected(encoded):
    for damaged in flips(encoded):
        with pytest.raises(CorruptFileError):
            decode(damaged)


def test_every_truncation_and_a_tail_are_detected(encoded):
    for length in range(len(encoded)):
        with pytest.raises(CorruptFileError):
            decode(encoded[:length])
    with pytest.raises(CorruptFileError):
        decode(encoded + b" ")


def flips(data):
    for place in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        yield bytes(damaged)


def test_every_flipped_bit_of_a_tombstone_is_detected():
    for damaged in flips(codec.encode_tombstone(Tombstone("n1", 1, 8))):
        with pytest.raises(CorruptFileError):
            decode(damaged)


def test_every_flipped_bit_of_a_hint_is_detected():
    for damaged in flips(codec.encode_hint("n1", Hint(8, 9))):
        with pytest.raises(CorruptFileError):
            codec.decode_hint(damaged, key="k", node="n1")


def test_newer_format_is_named_as_such(encoded):
    with pytest.raises(UnsupportedFormatError, match=r"manifest format 4, .* up to 3: update it"):
        decode(encoded.replace(b"tierdex-manifest 2 ", b"tierdex-manifest 4 ", 1))


FORGETTING = Forgetting(uuid=bytes(16), time_ms=7, asked=(AskedHash("t", 0, 5),))
PLAIN, MEANT = make_row(1), make_row(2)


def adding(**fields):
    return Change(add=(replace(MEANT, **fields),)), Change(
        remove={MEANT.uuid: RemoveReason.EXPIRED}
    )


NEW_MEANINGS = {  # name: (what begins it, what ends it)
    "hash range": adding(hash_range=HashRange(0, (1 << 64) - 1)),
    "kind of file": adding(kind=LOG_KIND),
    "kind of a later program": adding(kind="another_kind"),
    "forgotten": (Change(forgettings=(FORGETTING,)), Change(ends=(FORGETTING.uuid,))),
}


@pytest.fixture(params=NEW_MEANINGS)
def meaning(request):
    return NEW_MEANINGS[request.param]


def test_new_meaning_makes_a_commit_that_readers_of_format_2_refuse_in_clear_words(
    meaning, monkeypatch
):
    commit = make_commit(EMPTY, meaning[0])
    data = codec.encode_commit(commit)
    assert decode(data) == commit
    monkeypatch.setattr(codec, "FORMAT_VERSION", 2)  # as in a program of before
    with pytest.raises(UnsupportedFormatError, match=r"manifest format 3, .* up to 2: update it"):
        decode(data)


def test_commits_stay_at_the_next_format_as_long_as_the_meaning_lasts(meaning):
    store = MemoryStore()
    log = make_log(store, checkpoint_every=3)

    def commit(change):
        log.commit(lambda state: Draft(NodeKind.SHARED, 0, bytes(16), change))
        number = log.state.number
        return int(store.get(log.paths.manifest(number)).split(b" ")[1])

    begins, ends = meaning
    assert commit(Change(add=(PLAIN,))) == 2
    assert commit(begins) == 3
    assert [commit(Change(floor=n)) for n in (1, 2, 3, 4)] == [3, 3, 3, 3]  # with a checkpoint
    assert commit(ends) == 2
    assert [commit(Change(floor=n)) for n in (5, 6, 7)] == [2, 2, 2]
    assert make_log(store).load() == log.state


def test_new_meaning_in_a_format_that_lets_readers_pass_over_it_is_refused(meaning):
    commit = make_commit(EMPTY, meaning[0])
    for each in (commit, with_checkpoint(EMPTY, commit)):
        with pytest.raises(CorruptFileError, match="says in format 2 what only 3 can say"):
            decode(codec.frame(b"commit", codec.pack_commit(each), 2))


@pytest.mark.parametrize(
    "changes",
    [
        {"uuid": "00"}, {"time": None}, {"asked": [["t", 2, 5]]}, {"asked": [[None, 0, 5]]},
        {"asked": [["t", 0, -1]]}, {"asked": [["t", 0]]}, {"asked": [[7, 0, 5]]}, {"asked": 5},
        {"entries": "AAAA"}, {"entries": "*"}, {"entries": 7}, {"bounds": {"n": -1}},
        {"bounds": {"n": "5"}}, {"bounds": []}, {"files": [["n"]]}, {"waits": [7]},
        {"rewrites": 1}, {"only": [[1]]}, {"only": [[1, -1]]}, {"only": 3},
    ],
)  # fmt: skip
def test_forgetting_that_makes_no_sense_is_refused_though_the_checksum_is_right(changes):
    packed = codec.pack_commit(make_commit(EMPTY, NEW_MEANINGS["forgotten"][0]))
    packed["change"]["forgettings"][0] |= changes
    with pytest.raises(CorruptFileError):
        decode(codec.frame(b"commit", packed, 3))


@pytest.mark.parametrize(
    "changes",
    [
        {"hashes": [2, 1]}, {"hashes": [-1, 1]}, {"hashes": [0, 1 << 64]}, {"hashes": [0]},
        {"hashes": [0, 1.0]}, {"hashes": ["0", "1"]}, {"hashes": 7}, {"hashes": [True, 2]},
        {"kind": ""}, {"kind": 7}, {"kind": None}, {"kind": "Log"}, {"kind": "l" * 33},
        {"kind": "log\n"}, {"kind": "log", "tells": True},
    ],
)  # fmt: skip
def test_kind_or_hashes_that_make_no_sense_are_refused_though_the_checksum_is_right(changes):
    packed = row_codec.pack_row(make_row(1)) | changes
    with pytest.raises(CorruptFileError):
        row_codec.decode_row(json.dumps(packed).encode())


def test_files_of_other_kinds_are_listed_but_not_as_index_files():
    rows = [make_row(1), make_row(2, kind=LOG_KIND), make_row(3, kind="another_kind")]
    state = apply(EMPTY, make_commit(EMPTY, Change(add=tuple(rows))))
    assert list(state.files.values()) == rows
    assert list(state.index_files.values()) == rows[:1]
    keys = {row.object_key for row in rows}
    objects = [StoredObject(key, 1_000, 0) for key in keys]
    plan = plan_garbage(state, objects, now_ms=NOW_MS, grace_ms=0)
    assert not keys.intersection(plan.delete)


def test_commit_under_another_number_or_node_is_refused(encoded):
    with pytest.raises(CorruptFileError, match="number 1"):
        decode(encoded, number=2)
    with pytest.raises(CorruptFileError, match="n1"):
        codec.decode_manifest(encoded, key="k", node="n2", number=1)


def test_hint_of_another_node_is_refused():
    with pytest.raises(CorruptFileError):
        codec.decode_hint(codec.encode_hint("n2", Hint(8, 9)), key="k", node="n1")


@settings(max_examples=60, deadline=None)
@given(own.lives)
def test_live_record_is_decoded_back(live):
    hint = Hint(8, 9, live)
    assert codec.decode_hint(codec.encode_hint("n1", hint), key="k", node="n1") == hint


LIVE = LiveRecord(3, bytes(16), 5, 6, 7, -8, 60_000, advertise_url="http://10.0.0.7:8080")


def test_every_flipped_bit_of_a_live_record_is_detected():
    for damaged in flips(codec.encode_hint("n1", Hint(8, 9, LIVE))):
        with pytest.raises(CorruptFileError):
            codec.decode_hint(damaged, key="k", node="n1")


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "00"}, {"owner": 7}, {"epoch": -1}, {"published_through": None}, {"time_ms": 1.5},
        {"skew_ms": "8"}, {"interval_ms": 0}, {"is_closed": 1}, {"advertise_url": 5},
        {"advertise_url": "h" * 3000}, {"clock_ms": 1 << 63},
    ],
)  # fmt: skip
def test_live_record_that_makes_no_sense_is_refused_though_its_checksum_is_right(changes):
    packed = {"node": "n1", "checkpoint": 8, "number": 9, "live": pack_live(LIVE) | changes}
    with pytest.raises(CorruptFileError):
        codec.decode_hint(codec.frame(b"hint", packed), key="k", node="n1")


def test_hints_with_more_and_with_less_than_is_known_here_are_read():
    packed = {"node": "n1", "checkpoint": 8, "number": 9}
    assert codec.decode_hint(codec.frame(b"hint", packed), key="k", node="n1") == Hint(8, 9)
    packed |= {"live": pack_live(LIVE) | {"mood": "good"}, "more": 1}
    assert codec.decode_hint(codec.frame(b"hint", packed), key="k", node="n1").live == LIVE


def test_hint_under_a_number_is_refused():
    with pytest.raises(CorruptFileError):
        decode(codec.encode_hint("n1", Hint(8, 9)))


def test_tombstone_is_decoded_back():
    tombstone = Tombstone("n1", 1, 8)
    assert decode(codec.encode_tombstone(tombstone)) == tombstone


@pytest.mark.parametrize("newest", [0, 1])
def test_tombstone_that_leads_nowhere_is_refused(newest):
    with pytest.raises(CorruptFileError):
        decode(codec.encode_tombstone(Tombstone("n1", 1, newest)))


@pytest.mark.parametrize(
    "body",
    [b"[]", b"1", b"null", b"{}", b"{", b"\xff", b'{"node":"n1"}', b'"' * 3],
)
@pytest.mark.parametrize("what", [b"commit", b"tombstone", b"hint"])
def test_foreign_content_with_a_right_checksum_is_refused(what, body):
    data = codec.header_line(1, what, body) + body
    with pytest.raises(CorruptFileError):
        decode(data)
    with pytest.raises(CorruptFileError):
        codec.decode_hint(data, key="k", node="n1")


@pytest.mark.parametrize("changes", [{"sidecar_position": 1_001}, {"number": -1}, {"bytes": 1.5}])
def test_implausible_row_is_refused(changes):
    bad = replace(make_row(1), **changes)
    with pytest.raises(CorruptFileError):
        decode(codec.encode_commit(make_commit(EMPTY, Change(add=(bad,)))))
    with pytest.raises(CorruptFileError):
        row_codec.decode_row(row_codec.encode_row(bad))


@settings(max_examples=20, deadline=None)
@given(own.rows())
def test_row_is_decoded_back(row):
    assert row_codec.decode_row(row_codec.encode_row(row)) == row


def test_commit_of_a_format_that_no_release_wrote_is_refused(encoded):
    with pytest.raises(UnsupportedFormatError, match="format 1"):
        decode(codec.frame(b"commit", {}, 1))
    assert encoded.startswith(b"tierdex-manifest 2 commit ")


def test_row_has_no_name_of_a_topic_and_few_bytes_whatever_they_are():
    sizes = {}
    for count in (1, 64, 65, 100_000):
        topics = listed_topics(f"topic-with-a-long-name-{n:0200}" for n in range(count))
        data = row_codec.encode_row(make_row(1, topics=topics))
        assert b"topic-with" not in data
        assert row_codec.decode_row(data).topics == topics
        sizes[count] = len(data)
    assert sizes[1] < 400
    assert sizes[64] < 1100
    assert sizes[65] == sizes[100_000] < 400
