"""Forgetting keys: what was put before is found nowhere, what is put later is found everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.merge import merge_published
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.ids import SeededIds
from tierdex.index_service.peers.fetched_file import fetched_handle
from tierdex.index_service.peers.messages import Owner, Question, decode_answer, encode_question
from tierdex.index_service.peers.peer_round import PeerRound
from tierdex.index_service.query.answers import answers_of
from tierdex.index_service.requests.lookups import Lookups
from tierdex.index_service.requests.query import make_requests
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

KEYS = ("K1", "K2", "K3")
ONE = [{"topic": "orders", "key": "K1"}]


def same_answers(index, wanted, topic="orders"):
    """Hold every way of asking to the wanted offsets, newest first: {key: offsets}."""
    lookups = [{"topic": topic, "key": key} for key in wanted]
    expected = [sorted(found) for found in wanted.values()]
    single = [index.query(topic, key=key) for key in wanted]
    assert [sorted(offsets(answer)) for answer in single] == expected
    assert all(answer.complete for answer in single)
    batch = index.query_batch(lookups)
    assert [sorted(offsets(answer)) for answer in batch] == expected
    for count in (1, 64):
        table = index.query_batch_arrow(
            pa.table({"topic": [topic] * len(wanted), "key": list(wanted)}), max_count=count
        )
        numbers, found = table["lookup"].to_pylist(), table["offset"].to_pylist()
        per_key = [
            [o for n, o in zip(numbers, found, strict=True) if n == i] for i in range(len(wanted))
        ]
        if count == 1:
            assert [len(each) for each in per_key] == [min(1, len(each)) for each in expected]
            assert all(set(got) <= set(want) for got, want in zip(per_key, expected, strict=True))
        else:
            assert [sorted(each) for each in per_key] == expected


# -- a model ---------------------------------------------------------------------------------------


@dataclass
class World:
    """Two owners and what a perfect memory would answer: {key: {offset}}."""

    clock: ManualClock = field(default_factory=ManualClock)
    model: dict[str, set[int]] = field(default_factory=lambda: {key: set() for key in KEYS})

    def __post_init__(self):
        self.store = MemoryStore(clock=self.clock)

    def open(self, folder, name, number):
        rules = {"remote_interval": 0, "merge_min_files": 2, "grace_time": 5.0}
        return Index.open(
            folder / name, store=self.store, node=name, clock=self.clock,
            ids=SeededIds(number), **{**SMALL, **rules},
        )  # fmt: skip

    def reader(self):
        return Index.open(
            None, store=self.store, read_only=True, background=False, clock=self.clock,
            ids=SeededIds(9),
        )  # fmt: skip

    def put(self, index, key, offset):
        put(index, key, offset)
        self.model[key].add(offset)

    def forget(self, indexes, asker, key, *, now):
        receipt = asker.forget([{"topic": "orders", "key": key}], now=now)
        for _ in range(4):
            if receipt.is_complete:
                break
            assert receipt.waiting
            self.step(indexes)
            receipt = asker.resume_forgetting(receipt)
        assert receipt.is_complete
        assert not (now and receipt.holding)
        self.model[key].clear()

    def step(self, indexes):
        """Let a second pass; then every owner does all of its work."""
        self.clock.advance(31)
        for _ in range(2):
            for index in indexes:
                index.run_compaction()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 1), st.sampled_from(KEYS), st.integers(0, 6)),
        st.tuples(st.just("roll"), st.integers(0, 1)),
        st.tuples(st.just("work"), st.integers(0, 1)),
        st.tuples(st.just("publish"), st.integers(0, 1)),
        st.tuples(
            st.just("forget"), st.integers(0, 2), st.sampled_from(KEYS), st.booleans()
        ),
        st.tuples(st.just("look")),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=4, deadline=None)
@given(steps=steps)
@example([("put", 0, "K1", 0), ("look",), ("put", 0, "K1", 0), ("forget", 0, "K1", False)])
def test_two_nodes_that_forget_answer_like_a_perfect_memory(tmp_path_factory, steps):
    world, folder = World(), tmp_path_factory.mktemp("nodes")
    with world.open(folder, "a", 1) as a, world.open(folder, "b", 2) as b:
        put(a, "other", 1)
        a.flush("remote")
        with world.reader() as reader:
            run_steps(world, (a, b), reader, steps)


def run_steps(world, owners, reader, steps):
    everybody = (*owners, reader)
    for verb, *values in steps:
        world.clock.advance(1)
        if verb == "put":
            node, key, offset = values
            world.put(owners[node], key, offset)
        elif verb == "roll":
            owners[values[0]].roll()
        elif verb == "work":
            owners[values[0]].run_compaction()
        elif verb == "publish":
            owners[values[0]].flush("remote")
        elif verb == "forget":
            who, key, now = values
            world.forget(owners, everybody[who], key, now=now)
        look(world, owners, reader, at_end=verb == "look")
    look(world, owners, reader, at_end=True)
    for key in KEYS:
        world.forget(owners, reader, key, now=True)
    look(world, owners, reader, at_end=True)
    world.step(owners)  # and the grace time of what was written anew is over
    assert reader.forgettings() == []


def look(world, owners, reader, *, at_end):
    """Hold the owners' answers together to the model; at the end, with all published, each one's."""
    for index in (*owners, reader):
        index.refresh()
    if not at_end:
        both = [{key: set(offsets(i.query("orders", key=key))) for key in KEYS} for i in owners]
        assert {key: both[0][key] | both[1][key] for key in KEYS} == world.model
        return
    for index in owners:
        index.flush("remote")
    for index in (*owners, reader):
        index.refresh()
        same_answers(index, world.model)


# -- owners, readers, what they may see -------------------------------------------------------------


@pytest.fixture
def two(tmp_path):
    """Two owners of one store with a published entry of K1 each, and the world that they live in."""
    world = World()
    with world.open(tmp_path, "a", 1) as a, world.open(tmp_path, "b", 2) as b:
        for number, index in enumerate((a, b)):
            put(index, "K1", number)
            put(index, "K2", number)
            index.flush("remote")
        yield world, a, b


def test_request_waits_for_an_owner_that_has_not_published_and_names_it(two):
    world, a, b = two
    put(b, "K1", 7)
    world.clock.advance(1)
    receipt = a.forget(ONE)
    assert not receipt.is_complete
    assert [missing.file for missing in receipt.waiting] == ["node:b"]
    assert sorted(entry.offset for entry in receipt.entries) == [0, 1]
    b.refresh()
    assert offsets(b.query("orders", key="K1")) == [7]  # what no scan has seen yet shows
    world.step([b])  # acknowledges: rolls, publishes
    with world.reader() as reader:  # the process that asked is gone: another goes on
        receipt = reader.resume_forgetting(receipt.forgetting)
        assert receipt.is_complete
        assert 7 in [entry.offset for entry in receipt.entries]
        for index in (a, b, reader):
            index.refresh()
            same_answers(index, {"K1": [], "K2": [0, 1]})


def test_owner_that_publishes_after_the_request_writes_that_file_anew_too(two):
    world, a, b = two
    put(b, "K1", 7)
    world.clock.advance(1)
    receipt = a.forget(ONE, now=True)
    assert "node:b" in [missing.file for missing in receipt.waiting]
    for _ in range(2):
        world.step([b])  # publishes: the request does not name what is in that file yet
    for _ in range(2):
        receipt = a.resume_forgetting(receipt)
        world.step([b])
    assert receipt.waiting == []
    assert a.resume_forgetting(receipt).holding == []


def test_idle_owner_acknowledges_by_a_sign_before_it_is_due(two):
    world, a, b = two
    world.clock.advance(1)
    receipt = a.forget(ONE)
    assert [missing.file for missing in receipt.waiting] == ["node:b"]
    number = b.nodes()[1].number
    b.run_compaction()
    assert a.resume_forgetting(receipt).is_complete
    assert b.nodes()[1].number == number  # no commit: it had nothing to publish


def test_what_is_put_later_shows_even_the_same_location(two):
    _, a, b = two
    assert a.forget(ONE).is_complete
    put(a, "K1", 0)
    put(b, "K1", 9)
    assert offsets(a.query("orders", key="K1")) == [0]
    for index in (a, b):
        index.flush("remote")
    for index in (a, b):
        index.refresh()
        same_answers(index, {"K1": [0, 9], "K2": [0, 1]})


def test_reader_does_not_end_a_request_while_an_owner_may_hold_unpublished_entries(two):
    world, a, b = two
    put(a, "K1", 7)
    world.clock.advance(1)
    receipt = a.forget(ONE)
    b.run_compaction()
    receipt = a.resume_forgetting(receipt)
    assert (
        receipt.is_complete
    )  # all is hidden: b has acknowledged, and a's own files are known to it
    components_of(a).read_view.refresh()
    record = components_of(a).read_view.ages.forgotten.records[0]
    (local,) = (f for f in a.files() if f.state != "uploaded")
    assert record.bounds["a"] == int(local.file_id.split("-")[0])
    # What is published is written anew by its owners' merges; the reader finds none of it.
    for index in (a, b):
        writing = components_of(index).writing
        rows = writing.claim.get().state.files.values()
        merge_published(writing.compactor.components, list(rows))
    with world.reader() as reader:
        assert reader.forgettings() == [receipt.forgetting]
        assert reader.resume_forgetting(receipt.forgetting).is_complete
        assert reader.forgettings() == [receipt.forgetting]
        a.refresh()
        assert offsets(a.query("orders", key="K1")) == []
        a.flush("remote")
        assert reader.forgettings() == []
        same_answers(reader, {"K1": [], "K2": [0, 1]})


def test_what_is_put_where_a_request_was_acknowledged_shows_though_others_wait(two):
    world, a, b = two
    put(b, "K1", 7)
    world.clock.advance(1)
    receipt = a.forget(ONE)
    assert [missing.file for missing in receipt.waiting] == ["node:b"]
    put(a, "K1", 50)
    a.flush("remote")
    a.refresh()
    writing = components_of(a).writing
    merge_published(  # of what was put before the request and after it
        writing.compactor.components,
        sorted(writing.claim.get().state.files.values(), key=lambda row: row.number),
    )
    world.step([b])
    for _ in range(2):
        assert a.resume_forgetting(receipt).is_complete
    b.refresh()
    for index in (a, b):
        same_answers(index, {"K1": [50], "K2": [0, 1]})


def test_who_reads_some_nodes_only_cannot_ask(two):
    world, a, _ = two
    with Index.open(
        None, store=world.store, read_only=True, read_nodes=["b"], background=False,
        clock=world.clock,
    ) as reader:  # fmt: skip
        with pytest.raises(InvalidRequestError, match="read_nodes"):
            reader.forget(ONE)
        name = a.forget(ONE).forgetting
        with pytest.raises(InvalidRequestError, match="read_nodes"):
            reader.resume_forgetting(name)
        with pytest.raises(InvalidRequestError, match="a name or a receipt"):
            reader.resume_forgetting(5)


def test_what_is_put_after_a_restart_shows_even_the_same_location(tmp_path):
    world = World()
    for _ in range(2):
        with world.open(tmp_path, "a", 1) as a:
            put(a, "K1", 0)
            put(a, "K2", 1)
            assert a.forget(ONE).is_complete
            assert offsets(a.query("orders", key="K1")) == []
    with world.open(tmp_path, "a", 3) as a:
        put(a, "K1", 0)  # a broker replays
        same_answers(a, {"K1": [0], "K2": [1]})


def test_receipt_tells_where_the_entries_were_and_which_objects_were_written_anew(two):
    world, a, b = two
    receipt = a.forget(ONE, now=True)
    assert [missing.file for missing in receipt.waiting] == [receipt.holding[0].file_id]
    assert receipt.holding[0].node == "b"  # a wrote its own anew
    gone, before = receipt.rewritten[0], receipt.holding[0].object_key
    assert gone.node == "a"
    assert gone.object_key is not None
    world.step([b])
    receipt = a.resume_forgetting(receipt)
    assert receipt.is_complete
    assert receipt.holding == []
    assert sorted(entry.offset for entry in receipt.entries) == [
        0,
        1,
    ]  # to be erased where they lie
    assert {file.node for file in receipt.rewritten} == {"a", "b"}
    assert before not in {file.object_key for file in receipt.rewritten}
    assert receipt.manifest.keys() >= {"a", "b"}
    assert receipt.digest in receipt.document().values()
    for index in (a, b):
        index.refresh()
        assert sum(f.item_count for f in index.files() if f.state == "uploaded") == 2
    assert {each.node for each in receipt.lingering} == {"a", "b"}
    assert a.forgettings() == [receipt.forgetting]  # until the objects of before are deleted
    world.step([a, b])
    assert a.forgettings() == []
    kept = {found.key for found in world.store.list("nodes/")}
    assert not kept.intersection([before, *(each.object_key for each in receipt.lingering)])
    with pytest.raises(NotFoundError, match="is done"):
        a.resume_forgetting(receipt.forgetting)


def test_list_shrinks_by_itself_when_the_files_are_merged(two):
    world, a, b = two
    receipt = a.forget(ONE)
    assert receipt.is_complete
    assert a.forgettings() == [receipt.forgetting]
    for index in (a, b):  # its file that holds the entry, and another: two neighbours
        put(index, "other", 3)
        put(index, "more", 4)
        index.flush("remote")
    for _ in range(2):
        world.step([a, b])
    with world.reader() as reader:
        assert components_of(reader).read_view.ages.forgotten.records == ()
        same_answers(reader, {"K1": [], "K2": [0, 1]})


def test_only_what_was_compared_is_forgotten_of_two_keys_with_one_hash(two):
    _, a, b = two
    victim, attacker = "ORDER-8841", colliding_key("orders", "ORDER-8841")
    put(a, victim, 50)
    put(b, attacker, 60)
    for index in (a, b):
        index.flush("remote")
    a.refresh()
    assert sorted(offsets(a.query("orders", key=victim))) == [50, 60]  # an index keeps hashes only
    receipt = a.forget([{"topic": "orders", "key": attacker}], dry_run=True)
    assert sorted(entry.offset for entry in receipt.entries) == [50, 60]
    assert a.forgettings() == []
    receipt = a.forget([{"topic": "orders", "key": attacker}], only=[(0, 60)], now=True)
    b.run_compaction()
    assert a.resume_forgetting(receipt).is_complete
    for index in (a, b):
        index.refresh()
        same_answers(index, {victim: [50], "K1": [0, 1]})


def colliding_key(topic, key):
    """Return another key of the topic with the same hash: XXH64 of 16 bytes is solved for the last 8."""
    from tierdex.indexfile.hashing import key_hash, topic_seed

    bits = (1 << 64) - 1
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )  # fmt: skip
    rotated = lambda x, r: ((x << r) | (x >> (64 - r))) & bits  # noqa: E731
    inverse = {p: pow(p, -1, 1 << 64) for p in (p1, p2, p3)}
    h = key_hash(topic, key)
    h ^= h >> 32
    h = h * inverse[p3] & bits
    h = h ^ (h >> 29) ^ (h >> 58)
    h = h * inverse[p2] & bits
    h ^= h >> 33
    after = rotated((h - p4) * inverse[p1] & bits, 64 - 27)
    for number in range(1 << 20):
        first = f"{number:08d}".encode()
        word = int.from_bytes(first, "little")
        lane = rotated(word * p2 & bits, 31) * p1 & bits
        state = (rotated((topic_seed(topic) + p5 + 16) & bits ^ lane, 27) * p1 + p4) & bits
        lane = (state ^ after) * inverse[p1] & bits
        last = (rotated(lane, 64 - 31) * inverse[p2] & bits).to_bytes(8, "little")
        try:
            found = (first + last).decode()
        except UnicodeDecodeError:
            continue
        if found.isprintable():
            assert key_hash(topic, found) == key_hash(topic, key)
            return found
    raise AssertionError("no key")


def test_pages_of_a_cursor_go_on_behind_entries_that_were_forgotten(two):
    _, a, _ = two
    for offset in range(10, 20):
        put(a, "K3", offset)
    a.flush("remote")
    page = a.query("orders", key="K3", max_count=3)
    assert offsets(page) == [19, 18, 17]
    a.forget([{"topic": "orders", "key": "K3"}], only=[(0, 18), (0, 16), (0, 15), (0, 11)])
    page = a.query("orders", key="K3", max_count=3, cursor=page.next_cursor)
    assert offsets(page) == [14, 13, 12]
    page = a.query("orders", key="K3", max_count=3, cursor=page.next_cursor)
    assert offsets(page) == [10]


def test_keys_that_were_not_forgotten_are_still_answered_from_memory(two):
    _, a, _ = two
    for key in ("K1", "K2"):
        put(a, key, 30)
        assert offsets(a.query("orders", key=key))[0] == 30
    a.forget(ONE)
    put(a, "K2", 31)
    local = components_of(a).local_queries
    asked = {"message_id": None, "begin": None, "end": None, "max_count": 64}
    assert offsets(local.run("orders", "K2", **asked))[0] == 31
    assert local.run("orders", "K1", **asked) is None
    assert offsets(a.query("orders", key="K1")) == []


def test_reader_of_some_nodes_only_hides_it_too(two):
    world, a, _ = two
    a.forget(ONE)
    with Index.open(
        None, store=world.store, read_only=True, read_nodes=["b"], background=False,
        clock=world.clock,
    ) as reader:  # fmt: skip
        same_answers(reader, {"K1": [], "K2": [1]})


def test_what_a_peer_has_not_published_is_hidden_by_who_asks_it(two):
    world, a, b = two
    put(a, "K1", 7)
    put(a, "K2", 8)
    world.clock.advance(1)
    receipt = a.forget(ONE)
    b.run_compaction()
    assert a.resume_forgetting(receipt).is_complete  # its file is sealed and not published
    put(a, "K1", 9)
    with world.reader() as reader:
        asked = [{"topic": "orders", "key": key} for key in ("K1", "K2")]
        lookups = Lookups.of(make_requests(components_of(reader).settings, asked))
        state = components_of(reader).read_view.ages.states["a"]
        question = Question(Owner("a", state.epoch, state.owner.hex(), state.number), 100, lookups)
        with pa.ipc.open_stream(encode_question(question)) as stream:
            told = decode_answer(a.unpublished(stream.read_all()), question)
        rows = [file.columns["offset"].tolist() for file in told.files]
        assert sorted(offset for some in rows for offset in some) == [7, 8, 9]
        peers = PeerRound(handles=[fetched_handle("a", file, lookups) for file in told.files])
        found = answers_of(components_of(reader).queries.run(lookups, peer_round=peers))
        assert [sorted(offsets(answer)) for answer in found] == [[9], [0, 1, 8]]


def test_message_ids_are_forgotten_with_or_without_their_topic(two):
    _, a, _ = two
    for offset, topic in enumerate(("orders", "payments")):
        put(a, f"{topic}-{offset}", offset + 40, topic=topic, message_id="M")
    assert a.forget([{"message_id": "M", "topic": "payments"}]).is_complete
    assert offsets(a.query(message_id="M")) == [40]
    assert offsets(a.query("payments", key="payments-1")) == [41]  # its key was not asked for
    assert a.forget([{"message_id": "M"}]).is_complete
    assert offsets(a.query(message_id="M")) == []


# -- stops in between --------------------------------------------------------------------------------


class StoppedError(Exception):
    """The process ends here."""


class StoppingStore(MemoryStore):
    """A store whose process ends before, or behind, one of its writes."""

    left = None  # writes until then; None: never
    is_behind = False

    def _stopping(self, write):
        if self.left is None:
            return write()
        self.left -= 1
        if self.left < 0 and not self.is_behind:
            raise StoppedError
        done = write()
        if self.left < 0:
            raise StoppedError
        return done

    def put(self, key, data):
        return self._stopping(lambda: super(StoppingStore, self).put(key, data))

    def put_if_absent(self, key, data):
        return self._stopping(lambda: super(StoppingStore, self).put_if_absent(key, data))

    def upload(self, key, source, size):
        return self._stopping(lambda: super(StoppingStore, self).upload(key, source, size))


@pytest.mark.parametrize("is_behind", [False, True])
def test_stop_at_any_write_hides_all_or_nothing_and_the_next_request_ends_it(tmp_path, is_behind):
    writes = 0
    while True:
        world = World()
        world.store = StoppingStore(clock=world.clock)
        world.store.is_behind = is_behind
        folder = tmp_path / str(writes)
        with world.open(folder, "a", 1) as a:
            for offset in range(3):
                put(a, "K1", offset)
                put(a, "K2", offset)
            a.flush("remote")
            world.clock.advance(1)
            world.store.left = writes
            try:
                a.forget(ONE, now=True)
                was_stopped = world.store.left < 0
            except StoppedError:
                was_stopped = True
            world.store.left = None
        with world.open(folder, "a", 2) as a:
            assert sorted(offsets(a.query("orders", key="K1"))) in ([0, 1, 2], [])
            same_answers(a, {"K2": [0, 1, 2]})
            for name in a.forgettings():
                assert a.resume_forgetting(name).is_complete
            assert a.forget(ONE, now=True).is_complete
            same_answers(a, {"K1": [], "K2": [0, 1, 2]})
            world.step([a])
            assert a.forgettings() == []
        if not was_stopped:
            break
        writes += 1
    assert writes >= 5  # record, object, manifest, hints, end


def test_file_that_is_published_while_it_is_looked_for_is_looked_at_too(two, monkeypatch):
    """The compactor goes on in its thread: a local file may be a published one a moment later."""
    _, a, _ = two
    put(a, "K1", 70)
    request_scan = components_of(a).forgetter._request_scan
    scan = request_scan.scan

    def publish_first(record):
        a.run_compaction()
        return scan(record)

    monkeypatch.setattr(request_scan, "scan", publish_first)
    assert a.forget(ONE).is_complete
    assert offsets(a.query("orders", key="K1")) == []
