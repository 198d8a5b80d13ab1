"""Many real services over one store: owners that put, readers without state that ask the owners, and faults.

::

    this process:  puts to owners, notes when each was acknowledged ... asks readers, checks every answer
                   kill -9, SIGSTOP, restarts of one or of all in turn; a relay before each owner's address
                   passes on, delays, damages, hangs, refuses: between readers and that owner alone
    owners:        tierdex serve, a folder each, `advertise_url` is the relay's; another machine takes the
                   node over, while the older owner stands still; its folder is adopted
    readers:       tierdex serve --read-only, `peers=auto`, a cache folder that they share

Whatever an answer lacks was acknowledged after its `as_of`, or the answer is incomplete and names the node.
Nothing is found that was not put.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

import httpx2

from tests.patience import PATIENCE_S
from tests.torture.fork_server import server
from tests.torture.quick_folder import quick_folder
from tests.torture.relay import MODES, Relay
from tierdex import Client, Index
from tierdex.errors import TierdexError

SETTINGS = {
    "slot_count": 64, "item_capacity": 400, "disk_reserve_bytes": 0, "compact_interval": 0.05,
    "merge_min_files": 4, "merge_below_items": 1000, "checkpoint_every": 4, "remote_interval": 0.0,
}  # fmt: skip
OWNER = SETTINGS | {"live_interval": 0.3, "refresh_interval": 0.3, "roll_after": 0.7}
READER = SETTINGS | {
    "refresh_interval": 0.2, "peers": "auto", "peer_allow": ["127.0.0.1"], "peer_timeout": 0.5,
    "max_staleness": 3.0,
}  # fmt: skip
TOPIC = "t"


class Put(NamedTuple):
    """An acknowledged entry: its node, key and offset, and when (ms) its acknowledgement had arrived."""

    node: str
    offset: int
    acknowledged_ms: int

    @property
    def key(self):
        return f"{self.node}-{self.offset}"


def serve_node(data, store, settings, environment, takeover, said, telling):
    """Be `tierdex serve`, perhaps with --take-over; tell the address. Its log goes to the file `said`."""
    from tierdex.app.cli.commands.keys import open_key_file
    from tierdex.app.cli.commands.serve import Served, run, server_settings

    os.environ.update(environment)
    with open(said, "w") as file:
        os.dup2(file.fileno(), 2)
    run(
        Served(None if data is None else Path(data), store, settings, takeover=takeover),
        server_settings({"port": 0}, {}),
        open_key_file(None, Path("/nonexistent/keys")),
        lambda url: telling.send_bytes(url.encode()),
    )


def adopt_folder(data, store, settings, environment, telling):
    """Be `tierdex adopt`; tell when it is done."""
    os.environ.update(environment)
    with Index.open(Path(data), store=store, adopt=True, background=False, **settings) as index:
        index.roll()
        index.run_compaction()
    telling.send_bytes(b"adopted")


class Node:
    """One service: it starts, dies, stops and comes back."""

    def __init__(self, fleet, name, data, settings):
        self.fleet, self.name, self.data, self.settings = fleet, name, data, settings
        self.child = self.url = None

    def start(self, *, takeover=False):
        self.child = server().fork(
            "tests.torture.fleet:serve_node", self.data, self.fleet.store, self.settings,
            self.fleet.environment, takeover, self._said,
        )  # fmt: skip

    @property
    def _said(self):
        return str(self.fleet.folder / f"{self.name}.stderr")

    def wait_started(self):
        try:
            self.url = self.child.told().decode()
        except EOFError as error:
            raise AssertionError(f"{self.name} ended: {Path(self._said).read_text()}") from error
        host, _, port = self.url.removeprefix("http://").partition(":")
        self.address = host, int(port)

    def end(self, number):
        """End it with a signal, and wait for that."""
        self.child.signal(number)
        if number == signal.SIGTERM:
            self.child.signal(signal.SIGCONT)
        self.child.__exit__() if number == signal.SIGKILL else self.child.wait()
        self.url = None


class Owner(Node):
    """A service that owns a node, behind its relay."""

    def __init__(self, fleet, name):
        self.relay = Relay()
        settings = OWNER | {"node": name, "advertise_url": self.relay.url}
        super().__init__(fleet, name, str(fleet.folder / name), settings)
        self.puts, self._next, self.takeovers = [], 0, 0

    def wait_started(self):
        super().wait_started()
        self.relay.target = self.address

    def take_over(self, stands_still):
        """Let another machine take the node over; the older owner goes on behind it, or died before.

        What the older one acknowledged and has not published is in its folder: it is adopted.
        """
        older, folder = self.child, self.data
        self.takeovers += 1
        self.url, self.data = None, f"{self.fleet.folder / self.name}-{self.takeovers}"
        older.signal(signal.SIGSTOP if stands_still else signal.SIGKILL)
        if not stands_still:
            older.__exit__()
        self.start(takeover=True)
        try:
            self.wait_started()
        finally:
            if stands_still:
                older.signal(signal.SIGCONT)
                self.fleet.wait(0.5)  # it finds out that it is fenced
                older.__exit__()
        adopter = f"{self.name}a{self.takeovers}"
        settings = {**SETTINGS, "node": adopter}
        with server().fork(
            "tests.torture.fleet:adopt_folder", folder, self.fleet.store, settings,
            self.fleet.environment,
        ) as child:  # fmt: skip
            assert child.told() == b"adopted"

    def put(self, client, count):
        """Put entries, and note those whose acknowledgement came."""
        numbers = range(self._next, self._next + count)
        self._next += count
        client.put_batch(
            topic=TOPIC, keys=[f"{self.name}-{n}" for n in numbers], queue_id=0, size=1,
            offset=list(numbers), timestamp=5,
        )  # fmt: skip
        now_ms = time.time_ns() // 1_000_000
        self.puts += [Put(self.name, number, now_ms) for number in numbers]


class Fleet:
    """The services of one case, and what was put."""

    def __init__(self, folder, store, environment, source):
        self.folder, self.store, self.environment, self.source = folder, store, environment, source
        self.owners, self.readers = [], []
        self.checked = self.incomplete = self.found = 0
        self.wrong, self.ending = [], threading.Event()

    def open(self, owners, readers):
        self.owners = [Owner(self, f"n{number}") for number in range(owners)]
        self._start(self.owners)  # readers want to find a manifest
        cache = {"cache_dir": str(self.folder / "cache"), "read_only": True, "warm_up": True}
        self.readers = [Node(self, f"r{number}", None, READER | cache) for number in range(readers)]
        self._start(self.readers)

    @staticmethod
    def _start(nodes):
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_started()

    def close(self):
        self.ending.set()
        for node in (*self.owners, *self.readers):
            if node.child is not None:
                node.child.__exit__()
        for owner in self.owners:
            owner.relay.close()

    # -- load ----------------------------------------------------------------------------------------

    def put_until_the_end(self, owner, seed):
        """Put now and then; an owner that does not answer is tried again."""
        source = random.Random(seed)
        while not self.ending.wait(source.uniform(0, 0.1)):
            url = owner.url
            if url is not None:
                with self._quietly(), Client(url, timeout_s=2.0, attempts=1) as client:
                    owner.put(client, source.choice((1, 3, 20)))

    def ask_until_the_end(self, reader, seed):
        """Ask for what was acknowledged, singly and in batches; check each answer."""
        source = random.Random(seed)
        while not self.ending.wait(0.005):
            url = reader.url
            if url is not None:
                with self._quietly(), Client(url, timeout_s=10.0, attempts=1) as client:
                    while reader.url == url and not self.ending.is_set():
                        self._ask(client, source)

    @contextlib.contextmanager
    def _quietly(self):
        """Pass over what a service does that dies, stops or starts; remember what is wrong."""
        try:
            yield
        except (TierdexError, httpx2.HTTPError, OSError):
            self.ending.wait(0.05)
        except BaseException as error:  # noqa: BLE001 -- told by the one who waits
            self.wrong.append(error)
            self.ending.set()

    def _ask(self, client, source):
        puts = [self._choose(source) for _ in range(source.choice((1, 1, 1, 40)))]
        puts = [put for put in puts if put is not None]
        if not puts:
            self.ending.wait(0.02)
        elif len(puts) == 1:
            self._check(puts[0], client.query(TOPIC, key=puts[0].key))
        else:
            answers = client.query_batch([{"topic": TOPIC, "key": put.key} for put in puts])
            for put, answer in zip(puts, answers, strict=True):
                self._check(put, answer)

    def _choose(self, source):
        """Return an acknowledged entry, of the newest ones most of the time."""
        puts = source.choice(self.owners).puts
        count = len(puts)
        if not count:
            return None
        newest = source.random() < 0.7
        return puts[source.randrange(max(0, count - 30) if newest else 0, count)]

    def _check(self, put, answer):
        offsets = [entry.offset for entry in answer.entries]
        assert offsets in ([], [put.offset]), (put, answer)
        self.checked += 1
        self.found += len(offsets)
        self.incomplete += not answer.complete
        if offsets or put.acknowledged_ms >= answer.as_of:
            return
        named = {name.removeprefix("node:").split("-")[-1] for name, _ in answer.missing}
        named |= {name.partition("a")[0] for name in named}  # who adopts n1's folder is n1a1
        assert not answer.complete, ("lacks what was acknowledged before its as_of", put, answer)
        assert named & {put.node, "store"}, ("names other nodes", put, answer)

    # -- faults --------------------------------------------------------------------------------------

    def do_harm(self):
        """Do one thing to one service; what is stopped goes on, and what died comes back."""
        source = self.source
        chosen = source.random()
        owner, reader = source.choice(self.owners), source.choice(self.readers)
        if chosen < 0.1:
            owner.take_over(source.random() < 0.6)
        elif chosen < 0.4:
            owner.relay.mode = source.choice(MODES)
            if source.random() < 0.5:
                owner.relay.drop_connections()
            self.wait(source.uniform(0.1, 0.8))
            owner.relay.mode = "pass"
        elif chosen < 0.55:
            self._restart(owner, signal.SIGKILL)
        elif chosen < 0.62:
            self._restart(owner, signal.SIGTERM)
        elif chosen < 0.65:
            for node in source.choice((self.owners, self.readers)):  # as an update does
                self._restart(node, signal.SIGTERM)
        elif chosen < 0.8:
            owner.child.signal(signal.SIGSTOP)
            self.wait(source.uniform(0.1, 1.5))
            owner.child.signal(signal.SIGCONT)
        elif chosen < 0.9:
            reader.child.signal(signal.SIGSTOP)
            self.wait(source.uniform(0.1, 1.0))
            reader.child.signal(signal.SIGCONT)
        else:
            self._restart(reader, source.choice((signal.SIGTERM, signal.SIGKILL)))

    def _restart(self, node, number):
        node.end(number)
        self.wait(self.source.choice((0.0, 0.3, 1.2)))
        node.start()
        node.wait_started()

    def wait(self, seconds):
        self.ending.wait(seconds)

    def check_everything(self):
        """At rest every reader finds all that was acknowledged, and says so."""
        puts = [put for owner in self.owners for put in owner.puts]
        assert puts, "nothing was put"
        for reader in self.readers:
            deadline = time.monotonic() + PATIENCE_S
            while not self._finds_all(reader, puts):
                assert time.monotonic() < deadline, f"{reader.name} does not find everything"
                time.sleep(0.2)

    def _finds_all(self, reader, puts):
        with Client(reader.url, timeout_s=PATIENCE_S) as client:
            answers = client.query_batch([{"topic": TOPIC, "key": put.key} for put in puts])
        for put, answer in zip(puts, answers, strict=True):
            self._check(put, answer)
        return all(answer.complete and answer.entries for answer in answers)


def live(seed, *, owners, readers, harms, least=0, store=None, environment=None):
    """Let a fleet live through so many faults; return how many answers were checked, at least `least`."""
    source = random.Random(seed)
    with quick_folder() as folder:
        fleet = Fleet(folder, store or str(folder / "store"), environment or {}, source)
        threads = []
        try:
            fleet.open(owners, readers)
            jobs = [(fleet.put_until_the_end, owner) for owner in fleet.owners]
            jobs += [(fleet.ask_until_the_end, reader) for reader in fleet.readers]
            for job, node in jobs:
                threads.append(threading.Thread(target=job, args=(node, source.random())))
                threads[-1].start()
            for _ in range(harms):
                fleet.do_harm()
                if fleet.ending.is_set():
                    break
            deadline = time.monotonic() + PATIENCE_S
            while fleet.checked < least and not fleet.ending.wait(0.05):
                assert time.monotonic() < deadline, "readers answer nothing"
            fleet.ending.set()
            for thread in threads:
                thread.join()
            if fleet.wrong:
                raise fleet.wrong[0]
            fleet.check_everything()
        finally:
            fleet.close()
            for thread in threads:
                thread.join()
    assert fleet.found, "nothing was ever found"
    return fleet.checked


def live_on_a_folder(seed):
    return live(seed, owners=8, readers=12, harms=25)


def live_on_radosgw(seed):
    """Return None where the server is not installed."""
    from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
    from tools import radosgw

    if shutil.which("radosgw") is None:
        return None
    environment = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    with radosgw.running_radosgw(ACCESS_KEY, SECRET_KEY) as port:
        store = S3Server.at("radosgw", port).make_url("fleet")
        return live(seed, owners=8, readers=12, harms=25, store=store, environment=environment)


def live_in_a_fleet(seed):
    """Live on a folder, every fourth time on radosgw; return how many answers were checked."""
    on_radosgw = live_on_radosgw(seed) if seed % 4 == 3 else None
    return live_on_a_folder(seed) if on_radosgw is None else on_radosgw
