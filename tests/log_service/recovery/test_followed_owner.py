"""A log whose owner ended in order goes on in any folder, once everything that it holds is published."""

from __future__ import annotations

import pytest

from tests.log_service.log_world import DATA
from tests.log_service.recovery.test_takeover import fill
from tierdex.errors import NodeInUseError


def test_log_that_ended_with_everything_published_goes_on_elsewhere_without_a_flag(world):
    log = world.open()
    fill(world, log, 40)
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()
    log.close()
    other = world.elsewhere()
    log = other.open()
    other.look(log)
    fill(other, log, 30)  # `expect_offset` says that offsets go on
    other.look(log)
    with pytest.raises(NodeInUseError, match="had the node before"):
        world.open()  # the old disk is back, and its successor lives


def test_log_that_ended_with_messages_on_its_disk_alone_is_not_followed(world):
    log = world.open()
    fill(world, log, 40)
    log.close()
    with pytest.raises(NodeInUseError, match=r"ended .* not published"):
        world.elsewhere().open()


def test_a_takeover_into_a_fresh_folder_warns_of_no_damage(world, caplog):
    log = world.open()
    fill(world, log, 40)
    log.hand_over()
    log.close()
    caplog.clear()
    other = world.elsewhere()
    log = other.open(takeover=True)
    other.look(log)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "note made anew" not in told
    assert "does not verify" not in caplog.text


def test_a_note_that_is_damaged_is_still_warned_of(world, caplog):
    log = world.open()
    fill(world, log, 40)
    log.roll()
    log.run_compaction()
    log.close()
    world.disk.open(DATA / "log" / "PUBLISHED", writable=True).write_at(0, b"x")
    caplog.clear()
    world.look(world.open())
    assert "note made anew" in caplog.text


def test_one_published_file_tells_when_that_was(world):
    log = world.open()
    fill(world, log, 40)
    assert log.file(log.files()[0].file_id).published_at is None
    log.roll()
    log.run_compaction()
    (published,) = (file for file in log.files() if file.state == "uploaded")
    assert published.published_at is None  # a list asks no file
    assert log.file(published.file_id).published_at > 0
