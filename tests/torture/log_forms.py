"""Log files of every form and state, each with a judge (see forms.py)."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.logfile.log_files import Model, append, everything, make_journal, some_rows
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.torture.damages import Damages
from tests.torture.form import PATH, REFUSALS, Form
from tests.torture.guarded_memory import GuardedFiles, GuardedMemory
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.grouped.merge import write_grouped
from tierdex.logfile.grouped.sources import JournalSource
from tierdex.logfile.grouped.writer import BesideMessages
from tierdex.logfile.journal.file import Journal, SealedJournal, recover_journal
from tierdex.logfile.layout import Codec

BATCHES = (1, 30, 2, 90, 1, 60)
CAPACITY = 16 << 10
JOURNAL = Path("/journal")


class LogSpecimens(NamedTuple):
    """One log file's bytes at each turn of its life, and the messages that it holds."""

    half: bytes  # unsealed, with the first batches only
    unsealed: bytes
    sealed: bytes
    grouped: bytes
    grouped_again: bytes  # the same messages, another filter: an older generation
    sidecar_position: int
    model: Model


@cache
def make_log_specimens(seed=0):
    """Return one life's specimens; other seeds give other messages and uuids."""
    disk, model = SimulatedFileSystem(), Model()
    journal = make_journal(
        JOURNAL, filesystem=disk, uuid=bytes([seed]) * 16, capacity=CAPACITY, stage_bytes=8192
    )
    images = []
    for number, count in enumerate(BATCHES):
        append(journal, some_rows(count, queues=8, seed=100 * seed + number, most_bytes=40), model)
        images.append(disk.open(JOURNAL).read_at(0, CAPACITY))
    journal.seal({"covers": [[1, 2, 3]]})
    sealed = disk.open(JOURNAL).read_at(0, disk.file_size(JOURNAL))
    source = SealedJournal.open(disk, JOURNAL)
    grouped = [_group(source, bits) for bits in (8, 16)]
    return LogSpecimens(
        images[2], images[-1], sealed, *grouped[0][:1], grouped[1][0], grouped[0][1], model
    )


def _group(source, filter_bits):
    out = io.BytesIO()
    header = source.header.grouped(page_bytes=512, codec=Codec.LZ4)
    summary = write_grouped(
        [JournalSource(source)], out.write, header=header, beside=BesideMessages(filter_bits)
    )
    return out.getvalue(), summary.sidecar_position


class LogForm(Form):
    """What the forms share: every message of every queue, read a few at a time."""

    is_slow = True

    def __init__(self, seed):
        specimens, other = make_log_specimens(seed), make_log_specimens(seed + 1)
        self.model = specimens.model
        self.position = specimens.sidecar_position
        self.files = GuardedFiles()
        self.turn = 0
        images = self.pick(specimens), self.pick(other), self.pick_older(specimens)
        self.damages = Damages(*images, whole=False)
        assert self.judge(np.frombuffer(images[0], np.uint8)) == "unharmed"

    def judge(self, data):
        self.turn += 1
        file = None
        try:
            file = self.open(data)
            found = everything(file, self.model.queues)
        except REFUSALS:
            return "refused"
        finally:
            if file is not None:
                file.close()
        return self.compare(found)

    def compare(self, found):
        assert found == self.model.queues, "other messages"
        return "unharmed"


class JournalForm(LogForm):
    """The journal being written: its writer's next process, and a reader beside it.

    Damage of what was not synced looks like the torn end of a crash: then later batches are gone, as a whole.
    """

    name = "journal, unsealed"

    def pick(self, specimens):
        return specimens.unsealed

    def pick_older(self, specimens):
        return specimens.half

    def open(self, data):
        self.files.place(PATH, data)
        if self.turn % 2:
            return Journal.open_for_reading(self.files, PATH)
        return recover_journal(self.files, PATH, stage_bytes=8192)

    def compare(self, found):
        for queue, messages in found.items():
            assert messages == self.model.queues[queue][: len(messages)], "no prefix of a queue"
        count = sum(map(len, found.values()))
        batches = np.cumsum([0, *BATCHES])
        assert count in batches, "a part of a batch"
        return "unharmed" if count == batches[-1] else "shorter"


class SealedJournalForm(LogForm):
    """An immutable journal; what its compaction would read is held to the same."""

    name = "journal, sealed"

    def pick(self, specimens):
        return specimens.sealed

    def pick_older(self, specimens):
        return specimens.unsealed[: len(specimens.sealed)]

    def open(self, data):
        self.files.place(PATH, data)
        sealed = SealedJournal.open(self.files, PATH)
        if self.turn % 4 == 0:
            source = JournalSource(sealed)
            rows = source.rows(0, sealed.message_count)
            assert len(rows.addresses) == sum(BATCHES)
        return sealed


class GroupedForm(LogForm):
    """A grouped file that lies here whole."""

    name = "grouped, local"

    def pick(self, specimens):
        return specimens.grouped

    def pick_older(self, specimens):
        return specimens.grouped_again

    def open(self, data):
        self.files.place(PATH, data)
        return GroupedFile.open_local(self.files, PATH)


class LogSidecarForm(LogForm):
    """The tail of a published file, kept here; its pages come from the store, and are sound."""

    name = "grouped, sidecar"

    def pick(self, specimens):
        return specimens.grouped[specimens.sidecar_position :]

    def pick_older(self, specimens):
        again = specimens.grouped_again
        return again[specimens.sidecar_position :]

    def __init__(self, seed):
        self.memory = GuardedMemory(1 << 16)
        self.whole = make_log_specimens(seed).grouped
        super().__init__(seed)

    def open(self, data):
        placed = self.memory.place(data)
        return GroupedFile.from_sidecar(placed, lambda p, n: self.whole[p : p + n], name=PATH)
