"""Manifests, the small files of a data folder, and RocketMQ's index files, each with a judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.rocketmq.rocketmq_files import find
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.torture.damages import Damages
from tests.torture.form import PATH, REFUSALS, Form
from tests.torture.guarded_memory import GuardedFiles
from tests.torture.specimens import NODE, make_specimens
from tierdex.clock import ManualClock
from tierdex.errors import CorruptFileError
from tierdex.ids import SeededIds
from tierdex.lifecycle.folders.folder_lock import acquire_folder_lock, read_holder
from tierdex.lifecycle.folders.folder_notes import read_folder_node
from tierdex.lifecycle.manifests.applied_commit import apply, with_checkpoint
from tierdex.lifecycle.manifests.file_row import HashRange
from tierdex.lifecycle.manifests.forgotten import AskedHash, Forgetting
from tierdex.lifecycle.manifests.manifest import Change, Commit, Hint, ManifestState, NodeKind
from tierdex.lifecycle.manifests.manifest_codec import encode_commit, encode_hint
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.paths import DataPaths, StorePaths
from tierdex.rocketmq.file import RocketmqIndexFile
from tierdex.rocketmq.layout import index_hash
from tierdex.rocketmq.writer import RocketmqIndexWriter
from tierdex.storage_layer.memory import MemoryStore

ROWS_OF_64_KIB = 160  # of a manifest
_OF_KEYS = 3  # that one damaged RocketMQ file is asked for


class ManifestForm(Form):
    """A manifest object of 64 KiB; `state` must be what it was, or the log refuses to load."""

    with_checkpoint = False
    name = "manifest"

    def __init__(self, seed):
        self.specimen = make_specimens(seed)
        self.log_paths = StorePaths(NODE)
        self.objects = self.history(seed)
        self.key = self.log_paths.manifest(3 if self.with_checkpoint else 4)
        # The same number of another node, and the same node's number before.
        other = self.history(seed + 50, node="other")[self.key]
        before = 2 if self.with_checkpoint else 3
        older = self.history(seed, large=before)[self.log_paths.manifest(before)]
        self.damages = Damages(self.objects[self.key], other, older)
        self.sound = self.load(self.objects)
        assert len(self.sound.files) > 10

    def history(self, seed, rows=ROWS_OF_64_KIB, node=NODE, large=0):
        """Return four commits, the third a checkpoint; the checkpoint, or the last, is large."""
        ids, state, objects = SeededIds(seed), ManifestState(node=node), {}
        large = large or (2 if self.with_checkpoint else 4)
        for number in range(1, 5):
            added = [
                replace(
                    self.specimen.row,
                    uuid=ids.uuid(),
                    number=1000 * number + n,
                    replaces=(),
                    parts=(),
                    hash_range=HashRange(n << 8, (n << 8) + 255) if n % 2 else None,
                )
                for n in range(rows if number == large else 1)
            ]
            commit = Commit(
                node=node, number=number, kind=NodeKind.OWNED, epoch=1, owner=bytes(16),
                commit_id=ids.uuid(), time_ms=number, base=state.base,
                change=Change(add=tuple(added), forgettings=(_a_forgetting(ids, number),)),
            )  # fmt: skip
            if number == 3:
                commit = with_checkpoint(state, commit)
            objects[self.log_paths.manifest(number)] = encode_commit(commit)
            state = apply(state, commit)
        objects[self.log_paths.hint] = encode_hint(NODE, Hint(3, 3))
        return objects

    def load(self, objects):
        store = MemoryStore()
        for key, data in objects.items():
            store.put(key, data)
        log = ManifestLog(store, NODE, clock=ManualClock(), ids=SeededIds(1), checkpoint_every=8)
        return log.load()

    def judge(self, data):
        try:
            state = self.load({**self.objects, self.key: data.tobytes()})
        except REFUSALS:
            return "refused"
        assert state == self.sound, "another state"
        return "unharmed"


def _a_forgetting(ids, number):
    return Forgetting(
        uuid=ids.uuid(), time_ms=number, asked=(AskedHash("t", 0, number),),
        entries=bytes(range(24)), bounds={"n": number}, waits=("n",),
    )  # fmt: skip


class CheckpointForm(ManifestForm):
    with_checkpoint = True
    name = "checkpoint"


class HintForm(ManifestForm):
    """The hint is never trusted: whatever it says, the state is the newest."""

    name = "hint"
    never_fails = True

    def __init__(self, seed):
        super().__init__(seed)
        self.key = self.log_paths.hint
        self.damages = Damages(
            self.objects[self.key], encode_hint("other", Hint(9, 9)), encode_hint(NODE, Hint(1, 1))
        )

    def history(self, seed, rows=0, node=NODE, large=0):
        return super().history(seed, 12, node, large)


class LockForm(Form):
    """The lock file's text is for people: whatever it holds, the lock is taken and said who held it."""

    name = "lock file"
    never_fails = True

    def __init__(self, seed):
        del seed
        self.files, self.root = GuardedFiles(), Path("/data")
        text = b"pid 123 on host since 2026-01-01T00:00:00+00:00"
        self.damages = Damages(text, text.replace(b"123", b"456"), b"pid 1 on \xff\xfe")

    def judge(self, data):
        path = DataPaths(self.root).lock
        self.files.place(path, data)
        holder = read_holder(self.files, self.root)
        assert holder.isprintable(), holder
        assert len(holder) <= 200, holder
        acquire_folder_lock(self.files, self.root, "pid 7").release()
        assert read_holder(self.files, self.root) == "pid 7"
        return "unharmed"


class NodeForm(Form):
    """A folder's node is told, or refused; one legal name can become another by one bit."""

    name = "node file"

    def __init__(self, seed):
        del seed
        self.files, self.root = GuardedFiles(), Path("/data")
        self.damages = Damages(b"node.with_a_long_name.1\n", b"other\n", b"n\n")

    def judge(self, data):
        self.files.place(self.root / "NODE", data)
        try:
            node = read_folder_node(self.files, self.root)
        except CorruptFileError:
            return "refused"
        assert node == data.tobytes().decode().strip(), "another node than the file says"
        return "unharmed"


class RocketmqForm(Form):
    """A foreign file without checksums: each row has the hash that was asked for, or it is refused."""

    form = "local"
    name = "rocketmq, local"
    is_slow = True
    count = 1950

    def __init__(self, seed):
        self.files = GuardedFiles()
        self.keys = [f"K{n}" for n in range(0, self.count, 31)] + ["absent"]
        self.damages = Damages(
            self.make(seed, self.count), self.make(seed + 1, self.count), self.make(seed, 900)
        )
        self.turn = 0
        self.sound = self.answer(self.damages.sound, self.keys)

    def make(self, seed, count):
        disk = SimulatedFileSystem()
        writer = RocketmqIndexWriter(
            begin_ms=1_700_000_000_000, slot_capacity=400, item_capacity=self.count + 100
        )
        for n in range(count):
            writer.put(
                "T", topic_id=5, queue_id=n % 4, keys=[f"K{n}"], offset=n + seed, size=9,
                timestamp=1_700_000_000_000 + 1000 * n,
            )  # fmt: skip
        disk.make_folder(PATH.parent)
        writer.save(disk, PATH, form=self.form)
        file = disk.open(PATH)
        return file.read_at(0, file.size())

    def answer(self, data, keys):
        self.files.place(PATH, data)
        file = RocketmqIndexFile.open(self.files, PATH)
        found = {}
        for key in keys:
            rows = find(file, "T", key)
            assert (rows["hash"] == index_hash("T", key)).all(), "another hash"
            found[key] = rows.tobytes()
        return found

    def judge(self, data):
        self.turn = (self.turn + 1) % len(self.keys)
        asked = (self.keys + self.keys)[self.turn : self.turn + _OF_KEYS]
        try:
            answers = self.answer(data, asked)
        except REFUSALS:
            return "refused"
        sound = all(self.sound[key] == rows for key, rows in answers.items())
        return "unharmed" if sound else "not told (no checksums there)"


class RocketmqCompactedForm(RocketmqForm):
    form = "compacted"
    name = "rocketmq, compacted"
    count = 2250
