"""One file as operators see it."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import put
from tierdex.errors import NotFoundError


def test_one_published_file_tells_when_its_object_was_written_and_a_list_does_not(index, tmp_path):
    put(index, "a", 0)
    index.flush()
    assert index.file(index.files()[0].file_id).published_at is None
    index.roll()
    index.run_compaction()
    (listed,) = index.files()
    (thing,) = (tmp_path / "data" / "store").glob("nodes/*/files/*")
    written_ms = thing.stat().st_mtime_ns // 1_000_000
    assert listed.published_at is None
    assert index.file(listed.file_id) == listed._replace(published_at=written_ms)
    with pytest.raises(NotFoundError):
        index.file("none")
