"""`Index.health`: every reason that keeps an index from its work, and when the reason is over."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.errors import FencedError, UnavailableError
from tierdex.testing.components import components_of


def reasons(index):
    return [found.reason for found in index.health()]


def test_open_index_is_ready_and_a_closed_one_is_not(index):
    assert index.health() == []
    index.close()
    assert reasons(index) == ["closed"]


def test_read_only_index_is_ready(index, make_index, tmp_path):
    put(index, "A", 1)
    assert make_index(tmp_path / "data", read_only=True).health() == []


def test_fenced_index_says_who_took_the_node(make_index, tmp_path):
    old = make_index(store=str(tmp_path / "bucket"))
    put(old, "A", 1)
    old.flush("remote")
    new = make_index(tmp_path / "other", store=str(tmp_path / "bucket"), takeover=True)
    put(new, "A", 2)
    new.flush("remote")
    put(old, "A", 3)
    assert old.health() == []  # nothing told it yet
    with pytest.raises(FencedError):
        old.flush("remote")
    (found,) = old.health()
    assert found.reason == "fenced"
    assert "tierdex adopt" in found.detail
    assert new.health() == []


@pytest.mark.parametrize("kind", ["rename", "open"])
def test_index_without_a_file_for_puts_is_not_ready_until_one_opens(make_index, tmp_path, kind):
    """It opens one by itself: no client sends a put to a service that is not ready."""
    disk = SimulatedFileSystem()
    index = make_index(filesystem=disk)
    disk.fail(kind, for_ever=True)
    with pytest.raises(UnavailableError):
        put(index, "A", 1, durability="os")
    (found,) = index.health()
    assert found.reason == "no-file"
    assert "look after the disk" in found.detail
    disk.heal()
    components_of(index).writing.writer.prepare_next()  # what the background does twice a second
    assert index.health() == []
    put(index, "A", 1, durability="os")
    assert offsets(index.query("orders", key="A")) == [1]


def test_refused_put_alone_does_not_make_an_index_unready(index):
    with pytest.raises(Exception, match="offset"):
        put(index, "A", -1)
    assert index.health() == []
