"""A message log for as long as one likes, with everything at once: what the process holds stays flat.

::

    a round:  appends, messages for later, tail and cold readers, readers of the store and of the folder,
              keys, requests to forget, rolls ... over a store that fails, crawls and is away for seconds;
              half-way, under this load, the log is handed over to the other folder
    a pause:  the load ends; what was for later is there, each once; everything is published and expires;
              what the process holds (`soak.Usage`) is compared with the pauses of the first rounds

A real folder, real threads, the machine's clock. A message's body follows from its place, so that
its reader knows whether it is the right one.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.torture.simulation import CHANCES
from tests.torture.soak import Usage, assert_flat
from tierdex import MessageLog
from tierdex.app.c_memory import keep_few_arenas
from tierdex.clock import SystemClock
from tierdex.errors import (
    ClosedError,
    ConflictError,
    CorruptFileError,
    FencedError,
    StoreRefusedError,
    UnavailableError,
)
from tierdex.storage_layer.local import LocalStore
from tierdex.testing.faulty_store import FaultyStore

JOURNAL_BYTES = 4 << 20
RETENTION_S = 25.0
SETTINGS = {
    "node": "n", "journal_bytes": JOURNAL_BYTES, "max_message_bytes": 64 << 10, "disk_reserve_bytes": 0,
    "item_capacity": 20_000, "slot_count": 4096, "merge_min_files": 3, "keep_local_bytes": 4 << 20,
    "page_arena_bytes": 8 << 20, "read_ahead_bytes": 8 << 20, "page_cache_bytes": 4 << 20,
    "retention": RETENTION_S, "topic_retention": {"timed": 600.0},
    "checkpoint_every": 8, "compact_interval": 0.1, "refresh_interval": 1.0, "backoff_max": 1.0,
    "scrub_interval": 60.0,
}  # fmt: skip
READER = {"node": "n", "read_only": True} | {
    name: SETTINGS[name] for name in ("page_arena_bytes", "read_ahead_bytes", "page_cache_bytes")
}
TOPICS = ("a", "b")
QUEUES = 8
TIMED = "timed"
BATCH = 40
POLICIES = ("NOT_IN_DISK", "NOT_IN_MEM", "FORCE", None)
# What calls may raise while the store is unwell (a manifest may be altered on its way) and the log changes
# hands; anything else is a finding, and so is what goes on once the store is well.
UNWELL = (
    CorruptFileError,
    UnavailableError,
    StoreRefusedError,
    ConflictError,
    FencedError,
    ClosedError,
)
ROUND_S = 60.0
WARM_UP = 6  # rounds until pools, caches and kernels are what they stay


def body_of(topic, queue_id, offset):
    name = b"%s/%d/%d " % (topic.encode(), queue_id, offset)
    return name + random.Random(name).randbytes(20 + offset % 1000)


class LogSoak:
    """The life of a log. `live` is one round; `usages` has what was held in each pause."""

    def __init__(self, folder, seed, grace_time):
        self.folder, self.seed, self.clock = Path(folder), seed, SystemClock()
        self.source = random.Random(seed)
        self.store = FaultyStore(LocalStore(self.folder / "store"), clock=self.clock, crawl_s=0.3)
        self.settings = SETTINGS | {"grace_time": grace_time}
        self.owner = 0  # which of the two folders has the log
        self.changes_since = None  # when a hand-over was begun that is not over
        self.handed = {(topic, queue): 0 for topic in TOPICS for queue in range(QUEUES)}
        self.acknowledged = dict(self.handed)
        self.recent = {
            topic: [] for topic in TOPICS
        }  # (monotonic s, queue, offset) of the last appends
        self.asked = set()  # (topic, queue, offset): may be forgotten
        self.forgotten = {}  # place: the receipt that says it is
        self.timed_last = 0  # numbers of timed messages that were handed over
        self.timed_sure, self.timed_unsure, self.timed_seen = set(), set(), set()
        self.timed_offset = 0
        self.counts = dict.fromkeys(
            ("rounds", "appended", "timed", "read", "found", "forgotten", "readers", "hand-overs", "faults",
             "unwell"), 0,
        )  # fmt: skip
        self.errors, self.usages = [], []
        self.log = self._open()
        # From here on there is something in the store to open.
        self.log.append(topic="first", queue_id=0, body=b"first", durability="remote")

    def _open(self, **settings):
        folder = self.folder / f"data-{self.owner}"
        return MessageLog.open(
            folder, store=self.store, clock=self.clock, **self.settings, **settings
        )

    # -- a round -------------------------------------------------------------------------------------------

    def live(self, seconds):
        """Let everything go on together, hand the log over meanwhile, then pause and look."""
        self.counts["rounds"] += 1
        self.ending, self.longest_hold_ms = threading.Event(), round(200 * seconds)
        works = (
            lambda: self.hand_over(seconds / 2),
            *(lambda topic=topic: self.append(topic) for topic in TOPICS),
            *(lambda topic=topic: self.follow(topic) for topic in TOPICS),
            self.append_for_later, self.follow_timed, self.read_cold, self.read_back, self.read_store,
            self.read_folder, self.look_up, self.forget, self.break_store,
        )  # fmt: skip
        threads = [threading.Thread(target=self._work, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        self.ending.wait(seconds)
        while not (self.errors or self.counts["hand-overs"] == self.counts["rounds"]):
            time.sleep(0.1)
        self.ending.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads), (
            "a thread of the round does not end"
        )
        if self.errors:
            raise self.errors[0]
        self.pause()

    def _work(self, work):
        """Repeat it until the round ends; what the store is to blame for is tried again."""
        try:
            while not self.ending.is_set():
                try:
                    work()
                except UNWELL:
                    self.counts["unwell"] += 1
                    self.ending.wait(0.05)
        except BaseException as error:  # noqa: BLE001 (raised at the end of the round)
            self.errors.append(error)
            self.ending.set()

    def hand_over(self, after_s):
        """After a while the other folder goes on, whatever is going on."""
        if self.ending.wait(after_s) or self.counts["hand-overs"] == self.counts["rounds"]:
            return
        self.changes_since = time.monotonic()
        self._until(lambda: self.log.hand_over(timeout=5.0), "the log is not handed over")
        self._until(self.log.close, "the log does not close")
        self.owner = 1 - self.owner
        self._until(self._take, "the log is not taken over")
        self.changes_since = None
        self.counts["hand-overs"] += 1

    def _take(self):
        self.log = self._open(takeover=True)

    def _until(self, attempt, otherwise):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return attempt()
            except UNWELL as error:
                if self.errors:
                    raise self.errors[0] from error
                if time.monotonic() > deadline:
                    raise AssertionError(otherwise) from error
            time.sleep(0.05)

    # -- what goes on --------------------------------------------------------------------------------------

    def append(self, topic):
        """Append a batch to the topic's queues; after a refusal look how far it came."""
        log, source = self.log, random.Random(self.counts["appended"])
        queues = [source.randrange(QUEUES) for _ in range(BATCH)]
        places = []
        for queue_id in queues:
            places.append((queue_id, self.handed[topic, queue_id]))
            self.handed[topic, queue_id] += 1
        try:
            receipt = log.append_batch(
                topic=topic, queue_id=queues, body=[body_of(topic, *place) for place in places],
                keys=[[f"{queue}-{offset}", f"c{offset % 50}"] for queue, offset in places],
                durability=source.choice(("os", "disk")),
            )  # fmt: skip
        except UNWELL:
            self._find_end(topic)
            raise
        assert receipt.offsets.tolist() == [offset for _, offset in places], (topic, places)
        now = time.monotonic()
        for place in places:
            self.acknowledged[topic, place[0]] = place[1] + 1
        self.recent[topic] = [(now, *place) for place in places] + self.recent[topic][: 8 * BATCH]
        self.counts["appended"] += BATCH
        self.ending.wait(0.04)

    def _find_end(self, topic):
        """Go on where the queues end: whether the batch that was refused is there, was not said."""
        ends = self._until(lambda: self._ends(topic), "no store tells where the queues end")
        for queue_id, end in enumerate(ends):
            place = topic, queue_id
            least, most = self.acknowledged[place], self.handed[place]
            assert least <= end <= most, (place, least, end, most)
            self.handed[place] = self.acknowledged[place] = end

    def _ends(self, topic):
        return [self.log.end_offset(topic, queue, level="received") for queue in range(QUEUES)]

    def append_for_later(self):
        numbers = range(self.timed_last, self.timed_last + 10)
        self.timed_last = numbers.stop
        now = self.clock.now_ms()
        source = random.Random(numbers.start)
        try:
            self.log.append_batch(
                topic=TIMED, queue_id=0, body=[b"%d" % number for number in numbers],
                deliver_at=[now + source.choice((-5, 40, 900, self.longest_hold_ms)) for _ in numbers],
            )  # fmt: skip
        except UNWELL:
            self.timed_unsure.update(numbers)
            raise
        self.timed_sure.update(numbers)
        self.counts["timed"] += len(numbers)
        self.ending.wait(0.1)

    def follow(self, topic):
        """Read every queue from its tail on, at any level."""
        ends = {queue: self.log.end_offset(topic, queue) for queue in range(QUEUES)}
        for _ in range(200):
            for queue_id, offset in ends.items():
                visible = self.source.choice(("received", "os", "disk", "disk"))
                answer = self.log.read(topic, queue_id, offset, wait=0.005, visible=visible)
                self.check(answer)
                ends[queue_id] = max(offset, answer.next_offset)
            if self.ending.is_set():
                return

    def check(self, answer):
        """Every message that was given is the right one, in its place."""
        for number, message in enumerate(answer.messages):
            place = answer.topic, answer.queue_id, message.offset
            assert message.offset == answer.first_offset + number, place
            if message.is_forgotten:
                assert place in self.asked, (place, "forgotten, and no request asked for it")
            else:
                assert message.body == body_of(*place), (place, message.body[:60])
        self.counts["read"] += len(answer)

    def follow_timed(self):
        """Take what is delivered; none comes twice."""
        answer = self.log.read(TIMED, 0, self.timed_offset, wait=0.05)
        assert not answer.from_begin, "timed messages expired before they were read"
        for message in answer.messages:
            number = int(message.body)
            assert number not in self.timed_seen, (number, "was delivered twice")
            self.timed_seen.add(number)
        self.timed_offset = max(self.timed_offset, answer.next_offset)

    def read_cold(self, log=None):
        """Read somewhere in the past: a bit, or a whole queue."""
        log = log or self.log
        topic, queue_id = self.source.choice(TOPICS), self.source.randrange(QUEUES)
        begin, end = log.begin_offset(topic, queue_id), log.end_offset(topic, queue_id)
        offset = begin + self.source.randrange(max(1, end - begin))
        policy = self.source.choice(POLICIES)
        for _ in range(self.source.choice((1, 1, 100))):
            answer = log.read(topic, queue_id, offset, policy=policy, group="cold")
            self.check(answer)
            if not len(answer):
                break
            offset = answer.next_offset
        self.ending.wait(0.02)

    def read_back(self):
        """Read the last messages of a queue: all that was acknowledged before is there."""
        log, place = self.log, (self.source.choice(TOPICS), self.source.randrange(QUEUES))
        acknowledged = self.acknowledged[place]  # by this owner, or by one before it
        offset = max(0, acknowledged - self.source.choice((1, 20, 200)))
        offset, answer = self._read_on(log, place, offset, "received")
        if log is self.log:  # else another owner had the log meanwhile, and acknowledged more
            assert offset >= acknowledged, self._explain_short(log, place, offset, answer)

    def _read_on(self, log, place, offset, visible):
        """Read up to the end; return where that is, and the last answer. Raises what keeps one from it."""
        while True:
            answer = log.read(*place, offset, visible=visible)
            self.check(answer)
            offset = answer.next_offset
            if answer.missing:
                raise UnavailableError(str(answer.missing))
            if not len(answer):
                return offset, answer

    def _explain_short(self, log, place, offset, answer):
        """Return what is known of a queue that ended too early."""
        ends = {level: log.end_offset(*place, level=level) for level in ("received", "os", "disk")}
        again = len(log.read(*place, offset, visible="received"))
        said = answer.begin_offset, answer.end_offset, answer.from_begin, answer.generation
        files = [(info.file_id, info.state, info.message_count) for info in log.files()]
        return place, offset, self.acknowledged[place], ends, again, said, files[-4:]

    def read_store(self):
        """Read what is published as one who has the store alone, for a while."""
        with MessageLog.open(store=self.store, refresh_interval=1.0, **READER) as reader:
            self._read_beside(reader)

    def read_folder(self):
        folder = self.folder / f"data-{self.owner}"
        with MessageLog.open(folder, store=self.store, refresh_interval=1.0, **READER) as reader:
            self._read_beside(reader)

    def _read_beside(self, reader):
        self.counts["readers"] += 1
        for _ in range(60):
            with contextlib.suppress(*UNWELL):
                self.read_cold(reader)
            if self.ending.wait(0.05):
                return

    def look_up(self):
        """A key of late finds its message, or the answer says that it is not complete."""
        topic = self.source.choice(TOPICS)
        recent = self.recent[topic]
        if recent:
            since, queue_id, offset = self.source.choice(recent)
            self._look_for(topic, queue_id, offset, since)
        self.ending.wait(0.01)

    def _look_for(self, topic, queue_id, offset, since):
        place = topic, queue_id, offset
        forgotten = self.forgotten.get(place)
        answer = self.log.get(topic, key=f"{queue_id}-{offset}", visible="os")
        found = [(message.queue_id, message.offset) for message in answer]
        assert found in ([], [place[1:]]), (place, found)
        assert all(message.body == body_of(*place) for message in answer), place
        self.counts["found"] += len(found)
        # What was sealed since may go after its retention, the index's file first.
        if answer.complete and time.monotonic() - since < RETENTION_S:
            assert found or place in self.asked, (place, "a wrong not found")
        assert not (found and forgotten), (place, "was forgotten", forgotten)

    def forget(self):
        """Forget a message of late by its key."""
        topic = self.source.choice(TOPICS)
        if self.recent[topic]:
            _, queue_id, offset = self.source.choice(self.recent[topic])
            place = topic, queue_id, offset
            now = self.source.random() < 0.2
            if place not in self.asked:
                self.forget_one(place, now=now)
        self.ending.wait(self.source.uniform(0.3, 3.0))

    def forget_one(self, place, *, now):
        log, key = self.log, f"{place[1]}-{place[2]}"
        self.asked.add(place)  # a reader may see either meanwhile
        receipt = log.forget(place[0], key=key, now=now)
        named = [tuple(each) for each in receipt.messages]
        assert named in ([], [place]), (place, named)
        # What it could not look at may have the message; the next owner may not know of it yet.
        if receipt.is_complete or (named and all(each.file != "store" for each in receipt.waiting)):
            answer = log.get(place[0], key=key)
            assert not len(answer), (place, "was forgotten", receipt)
            self.forgotten[place] = receipt
        self.counts["forgotten"] += len(named)

    def break_store(self):
        """The store is well, fails now and then, or is away for seconds.

        It stays well once a hand-over has waited for long: on a busy machine none would come to its end.
        """
        since = self.changes_since
        stays_well = since is not None and time.monotonic() - since > PATIENCE_S / 2
        share = 0.0 if stays_well else self.source.choice((0.0, 0.0, 0.05, 0.2))
        self.store.chances = {fault: share * chance for fault, chance in CHANCES.items()}
        if not stays_well and self.source.random() < 0.3:
            with self.store.outage():
                self.ending.wait(self.source.uniform(0.5, 6.0))
        else:
            self.ending.wait(self.source.uniform(1.0, 8.0))
        if self.source.random() < 0.3:
            self.log.roll()

    # -- a pause -------------------------------------------------------------------------------------------

    def pause(self):
        """The store is well and no worker runs: all that was acknowledged is there, then all of it goes."""
        self.store.chances = {}
        self.store.end_outage()
        self.counts["faults"] += len(self.store.history)
        self.store.history.clear()
        self.look_at_everything()
        self._let_go()
        self.usages.append(Usage(self.folder))

    def look_at_everything(self):
        for topic in TOPICS:
            self._find_end(topic)
            for queue_id in range(QUEUES):
                self._until(
                    lambda t=topic, q=queue_id: self._replay(t, q), "a queue cannot be read"
                )
        self._until(self._take_timed, "held messages are not delivered")
        missing = self.timed_sure - self.timed_seen
        assert not missing, ("a held message is gone", sorted(missing)[:9])
        assert self.timed_seen <= self.timed_sure | self.timed_unsure
        for numbers in (self.timed_sure, self.timed_unsure, self.timed_seen):
            numbers.clear()

    def _take_timed(self):
        if self.log.timers():
            raise UnavailableError("some messages wait for their time")
        while self.timed_offset < self.log.end_offset(TIMED, 0):
            self.follow_timed()

    def _replay(self, topic, queue_id):
        place = topic, queue_id
        begin = self.log.begin_offset(topic, queue_id)
        offset, answer = self._read_on(self.log, place, begin, "received")
        assert offset == self.acknowledged[place], self._explain_short(
            self.log, place, offset, answer
        )

    def _let_go(self):
        """Publish and expire everything; wait until the store has deleted what was listed."""
        log = self.log
        self.asked.clear()
        self.forgotten.clear()
        for topic in TOPICS:
            self.recent[topic] = []
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._until(lambda: log.flush("remote"), "not published")
            with contextlib.suppress(*UNWELL):
                log.expire(before=self.clock.now_ms() + 1)
                log.run_compaction()
            held = [info for info in log.files() if info.message_count]
            objects = list((self.folder / "store").rglob("files/*"))
            if (
                len(held) <= 1 and len(objects) <= 8
            ):  # the one with the last mark of the timer stays
                return
            assert time.monotonic() < deadline, ("does not go", held[:3], objects[:9])
            time.sleep(0.5)

    def close(self):
        self._until(self.log.close, "the log does not close")


def soak(
    folder,
    seconds,
    seed=0,
    round_s=ROUND_S,
    warm_up=WARM_UP,
    grace_time=4.0,
    tell=lambda line: None,
):
    """Run rounds until the time is over; return the life. Raises AssertionError when something grew."""
    keep_few_arenas()  # as `tierdex serve` does
    life = LogSoak(folder, seed, grace_time)
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds or len(life.usages) <= warm_up:
            life.live(round_s)
            tell(
                json.dumps(
                    {"s": round(time.monotonic() - began), **life.counts, **vars(life.usages[-1])}
                )
            )
    finally:
        life.close()
    if seconds:  # in a moment nothing has become what it stays
        assert_flat(life.usages[warm_up - 1], life.usages[-1], disk_bytes=2 * JOURNAL_BYTES)
    return life
