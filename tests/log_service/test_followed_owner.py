"""A log whose owner ended in order goes on in any folder, once everything that it holds is published."""

from __future__ import annotations

import pytest

from tests.log_service.test_takeover import fill
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
