"""A walk goes on after a read of its file failed: nothing of the failed attempt is taken for the file's."""

from __future__ import annotations

import pytest

from tests.log_service.log_world import DATA, open_log, seal_rolled
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.errors import CorruptFileError
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.keys import key_walk
from tierdex.log_service.keys.key_walk import KeyWalk
from tierdex.logfile.journal.sealed import SealedJournal
from tierdex.testing.components import components_of


@pytest.fixture
def log():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    with open_log(disk) as log:
        for number in range(30):
            log.append(
                topic=f"t{number % 3}", queue_id=number % 5, body=b"b", keys=[f"k{number}", "same"]
            )
        yield log


def handle_of(log):
    return components_of(log).table.snapshot().files[0]


def taken(walk, reader):
    """Return what the rest of a walk gives: topics, kinds, hashes and offsets."""
    found = []
    while (piece := walk.take(reader)) is not None:
        for items in piece.items:
            index = [0] * len(items.hashes) if items.topic_index is None else items.topic_index
            topics = [items.topics[at] for at in index]
            fields = items.fields["offset"].tolist()
            found += zip(topics, items.hashes.tolist(), fields, strict=True)
    return found


def refused_walk(uuid, reader):
    """Return a walk whose first read of the file was refused."""
    walk = KeyWalk(uuid)
    with pytest.raises(CorruptFileError):
        walk.take(reader)
    return walk


def test_walk_of_compacted_file_goes_on_after_its_directory_could_not_be_read(log, monkeypatch):
    log.roll()
    log.run_compaction()
    reader = handle_of(log).reader
    expected = taken(KeyWalk(reader.file.uuid), reader)
    with monkeypatch.context() as patch:
        patch.setattr(key_walk, "GroupedSource", _damaged)
        walk = refused_walk(reader.file.uuid, reader)
    assert taken(walk, reader) == expected
    assert len(expected) == 60


def test_walk_of_sealed_journal_goes_on_after_its_queues_could_not_be_read(log, monkeypatch):
    live = handle_of(log).reader
    expected = taken(KeyWalk(live.journal.uuid), live)
    log.roll()
    seal_rolled(log)
    reader = handle_of(log).reader
    with monkeypatch.context() as patch:
        patch.setattr(SealedJournal, "queues", _damaged)
        walk = refused_walk(reader.journal.uuid, reader)
    assert taken(walk, reader) == expected
    assert len(expected) == 60


def _damaged(*_):
    raise CorruptFileError("file", "damaged")
