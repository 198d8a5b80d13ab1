"""What the tests of the log share: a world whose store can fail."""

from __future__ import annotations

import pytest

from tests.log_service.keyed_world import KeyedWorld
from tierdex.testing.faulty_store import FaultyStore


@pytest.fixture
def world():
    """A log with its index on a simulated disk, over a store that fails where it is told to."""
    world = KeyedWorld()
    world.store = FaultyStore(world.store)
    return world
