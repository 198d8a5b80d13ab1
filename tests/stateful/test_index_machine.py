"""The index against its model: hypothesis invents the story, the model says how it should read."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.simulation import strategies as given
from tests.stateful.model import Lookup
from tests.stateful.world import UNWELL, World, identities_of
from tierdex.errors import CursorExpiredError
from tierdex.testing.faulty_store import Fault

FILTERS = st.sampled_from((0, 8, 16))
SITES = st.sampled_from(("alpha", "beta"))


class IndexMachine(RuleBasedStateMachine):
    """Two nodes over one store; every rule is one thing that an operator, a caller or fate does."""

    def __init__(self):
        super().__init__()
        self.world = None

    @initialize(seed=st.integers(0, 1 << 16), filter_bits=FILTERS, merge=st.sampled_from((0, 400)))
    def begin(self, seed, filter_bits, merge):
        self.world = World(
            seed, ("alpha", "beta"), filter_bits=filter_bits, merge_below_items=merge,
        )  # fmt: skip

    def teardown(self):
        if self.world is not None:
            self.world.settle()
            self.world.close()

    # -- callers ---------------------------------------------------------------------------------

    @rule(
        site=SITES, topic=given.topics, keys=given.key_lists, message_id=given.message_ids,
        queue_id=given.queue_ids, timestamp=given.times, level=given.levels,
    )  # fmt: skip
    def put(self, site, topic, keys, message_id, queue_id, timestamp, level):
        site = self.world.sites[site]
        site.put(site.make_put(topic, keys, message_id, queue_id, timestamp), level)

    @rule(site=SITES, topic=given.topics, count=st.integers(1, 150), first=st.integers(900, 1100),
          with_ids=st.booleans(), level=given.levels)  # fmt: skip
    def put_batch(self, site, topic, count, first, with_ids, level):
        site = self.world.sites[site]
        puts = [
            site.make_put(
                topic, [given.KEYS[row % 3]], f"B{row}" if with_ids else None, row % 2, first + row
            )
            for row in range(count)
        ]
        site.put_batch(puts, "os" if level == "received" else level)

    @rule(site=SITES, which=st.integers(0, 1 << 30))
    def replay(self, site, which):
        """A broker sends again what it sent before, in a batch or alone."""
        site = self.world.sites[site]
        if site.model.puts:
            site.put(site.model.puts[which % len(site.model.puts)])

    @rule(site=SITES, which=st.integers(0, 1 << 30), timestamp=given.times)
    def put_at_another_time(self, site, which, timestamp):
        """The same location once more, with another time: another entry."""
        site = self.world.sites[site]
        if site.model.puts:
            put = site.model.puts[which % len(site.model.puts)]
            site.put(put._replace(timestamp=timestamp))

    @rule(site=SITES, topic=given.topics, key=given.keys, page=given.page_sizes)
    def query(self, site, topic, key, page):
        self.world.sites[site].check_lookup(Lookup(topic, key), page)

    @rule(site=SITES, topic=given.topics, key=given.keys, page=given.page_sizes,
          times=st.tuples(given.times, given.times))  # fmt: skip
    def query_range(self, site, topic, key, page, times):
        lookup = Lookup(topic, key, begin=min(times), end=max(times))
        self.world.sites[site].check_lookup(lookup, page)

    @rule(site=SITES, message_id=st.sampled_from(("M1", "M2", "A", "B0", "B7")),
          topic=st.none() | given.topics, page=given.page_sizes)  # fmt: skip
    def query_message_id(self, site, message_id, topic, page):
        self.world.sites[site].check_lookup(Lookup(topic, message_id=message_id), page)

    @rule(site=SITES)
    def query_batch(self, site):
        site = self.world.sites[site]
        lookups = [Lookup(topic, key) for topic in given.TOPICS for key in given.KEYS]
        lookups += [Lookup(None, message_id=text) for text in (*given.MESSAGE_IDS, "B3")]
        lookups += [Lookup("orders", "A", begin=950, end=1020)]
        site.check_batch(lookups)

    @rule(site=SITES, topic=given.topics, key=given.keys, steps=st.lists(
        st.sampled_from(("roll", "compact", "reopen", "kill", "put")), max_size=4))  # fmt: skip
    def pages_while_files_move(self, site, topic, key, steps):
        """A cursor survives what happens to the files between two pages, or is refused."""
        site = self.world.sites[site]
        lookup = Lookup(topic, key)
        expected = site.model.expected(lookup)
        found, cursor = [], None
        while True:
            try:
                answer = site.index.query(**lookup.fields(), max_count=2, cursor=cursor)
            except CursorExpiredError:
                return  # this site's files were merged, with the other's in between
            assert answer.complete
            found += answer.entries
            cursor = answer.next_cursor
            if cursor is None:
                break
            if steps:
                self.disturb(site, steps.pop())
        assert identities_of(e for e in found if e.node == site.name) == expected

    def disturb(self, site, step):
        if step == "put":  # newer than the page: it must not shift what follows
            site.put(site.make_put("elsewhere", ["K"], None, 0, 1))
        elif step == "roll":
            site.index.roll()
        elif step == "compact":
            site.compact()
        else:
            site.flush("os")
            site.reopen() if step == "reopen" else site.kill()

    # -- operators -------------------------------------------------------------------------------

    @rule(site=SITES, level=st.sampled_from(("os", "disk", "remote")))
    def flush(self, site, level):
        self.world.sites[site].flush(level)
        self.world.sites[site].check_watermarks()

    @rule(site=SITES)
    def roll(self, site):
        self.world.sites[site].index.roll()

    @rule(site=SITES)
    def compact(self, site):
        self.world.sites[site].compact()

    @rule(site=SITES)
    def refresh(self, site):
        self.world.sites[site].index.refresh()

    @rule(site=SITES, back=st.sampled_from((0, 1000, 100_000)))
    def expire(self, site, back):
        site = self.world.sites[site]
        site.expire(self.world.clock.now_ms() - back)
        site.check_all()

    @rule(seconds=st.sampled_from((0.001, 1, 40, 4000)))
    def pass_time(self, seconds):
        self.world.clock.advance(seconds)

    @rule(milliseconds=st.sampled_from((-60_000, -1, 30_000)))
    def step_clock(self, milliseconds):
        self.world.clock.step(milliseconds)

    # -- fate ------------------------------------------------------------------------------------

    @rule(site=SITES)
    def reopen(self, site):
        self.world.sites[site].reopen()

    @rule(site=SITES)
    def kill(self, site):
        self.world.sites[site].kill()

    @rule(site=SITES, seed=st.integers(0, 1 << 30), density=st.sampled_from((0.0, 0.3, 0.7, 1.0)))
    def cut_power(self, site, seed, density):
        source = __import__("random").Random(seed)
        self.world.sites[site].cut_power(lambda effect: source.random() < density)

    @rule(site=SITES)
    def lose_disk(self, site):
        self.world.sites[site].lose_disk()

    @rule(site=SITES, nth=st.integers(1, 60), after=st.booleans(),
          what=st.sampled_from(("compact", "roll", "flush", "put_batch", "remote")))  # fmt: skip
    def kill_within(self, site, nth, after, what):
        site = self.world.sites[site]
        with site.crashing(nth, after=after):
            if what == "compact":
                site.index.roll()
                site.compact()
            elif what == "roll":
                site.index.roll()
            elif what == "flush":
                site.flush("disk")
            elif what == "remote":
                site.flush("remote")
            else:
                site.put_batch(
                    [site.make_put("orders", ["A"], None, 0, 1000 + i) for i in range(40)]
                )

    @rule(site=SITES, fault=st.sampled_from(sorted(Fault, key=lambda fault: fault.value)),
          verb=st.sampled_from(("get", "put", "put_if_absent", "upload", "delete", "list")),
          nth=st.integers(1, 4))  # fmt: skip
    def compact_over_bad_store(self, site, fault, verb, nth):
        """One fault of the store during compaction: an error perhaps, and all is well the next time."""
        site = self.world.sites[site]
        self.world.store.fail(verb, nth=nth, fault=fault)
        site.index.roll()
        try:
            site.compact()
        except UNWELL:
            pass
        finally:
            self.world.store.cancel_faults()
        site.compact()
        assert all(info.state in ("uploaded", "unsealed") for info in site.index.files())

    @precondition(lambda self: self.world is not None)
    @invariant()
    def every_file_is_sound(self):
        for site in self.world.sites.values():
            site.check_files()


def test_index_does_what_the_model_says():
    run_state_machine_as_test(
        IndexMachine,
        settings=settings(
            max_examples=30,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            database=None,
        ),
    )


def test_replay_that_a_kill_took_leaves_the_order_of_before():
    world = World(0)
    site = world.sites["alpha"]
    site.put_batch([site.make_put("orders", ["A"], None, 0, 900 + row) for row in range(4)])
    again = site.model.puts[0]
    site.put(again)  # only received
    site.kill()
    assert len(site.model.puts) == 4
    site.put(again, "os")
    site.kill()
    assert site.model.puts[-1] == again
    world.settle()
    world.close()
