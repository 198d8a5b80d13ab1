from __future__ import annotations

import pytest

import tierdex
from tests.following.tables.answers import SMALL


@pytest.fixture
def index(tmp_path):
    with tierdex.Index.open(tmp_path / "data", **SMALL) as opened:
        yield opened
