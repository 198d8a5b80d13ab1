import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lifecycle.rows import make_row, make_uuid
from tierdex.errors import IllegalTransitionError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.table.file_handle import FileHandle, live_handle
from tierdex.lifecycle.table.file_table import FileTable

S = FileState


class Reader:
    """A reader that remembers that it was closed, with live counts."""

    def __init__(self, item_count=0, min_time=0, max_time=0):
        self.item_count = item_count
        self.min_time = min_time
        self.max_time = max_time
        self.bytes_used = 100 * item_count
        self.closed = 0

    def close(self):
        self.closed += 1


def make_handle(number, *, reader=None, state=S.SEALED, times=(0, 10), node="n1", items=1):
    handle = FileHandle(
        number=number,
        node=node,
        uuid=make_uuid(number),
        state=state,
        path=Path(f"/d/{state.folder}/{number}"),
        fixed_item_count=items,
        fixed_min_time=times[0],
        fixed_max_time=times[1],
    )
    return handle if reader is None else handle.successor(reader=reader)


def make_live(number, reader):
    return live_handle(
        number=number,
        node="n1",
        uuid=make_uuid(number),
        path=Path(f"/d/unsealed/{number}"),
        reader=reader,
        slot_count=4,
        begin_ms=5,
    )


def numbers(handles):
    return [handle.number for handle in handles]


def test_snapshot_lists_newest_first():
    table = FileTable()
    table.insert(*map(make_handle, (3, 1, 2)))
    with table.snapshot() as snapshot:
        assert numbers(snapshot.files) == [3, 2, 1]
        assert numbers(snapshot.file_list) == [3, 2, 1]
        assert numbers(snapshot.file_list.iterate()) == [1, 2, 3]
        assert numbers(snapshot.file_list.iterate((2, ""), (2, "zz"))) == [2]


def test_files_of_one_number_are_ordered_by_node():
    table = FileTable()
    table.insert(make_handle(1, node="a"), make_handle(1, node="b"))
    with table.snapshot() as snapshot:
        assert [f.node for f in snapshot.files] == ["b", "a"]


def test_snapshot_does_not_change_when_the_table_does():
    table = FileTable()
    table.insert(make_handle(1))
    with table.snapshot() as snapshot:
        table.insert(make_handle(2))
        assert numbers(snapshot.files) == [1]
    with table.snapshot() as snapshot:
        assert numbers(snapshot.files) == [2, 1]


def test_reader_of_a_removed_file_is_closed_after_the_last_snapshot():
    table, reader = FileTable(), Reader()
    handle = make_handle(1, reader=reader)
    table.insert(handle)
    first, second = table.snapshot(), table.snapshot()
    table.remove(handle)
    first.release()
    first.release()
    assert reader.closed == 0
    second.release()
    assert reader.closed == 1


def test_reader_of_a_removed_file_is_closed_at_once_without_snapshots():
    table, reader = FileTable(), Reader()
    handle = make_handle(1, reader=reader)
    table.insert(handle)
    table.remove(handle)
    assert reader.closed == 1


def test_snapshot_dropped_on_the_floor_lets_go():
    table, reader = FileTable(), Reader()
    handle = make_handle(1, reader=reader)
    table.insert(handle)
    snapshot = table.snapshot()
    table.remove(handle)
    del snapshot
    table.insert(make_handle(2))
    assert reader.closed == 1


def test_acquired_handle_outlives_its_snapshot():
    table, reader = FileTable(), Reader()
    table.insert(make_handle(1, reader=reader))
    with table.snapshot() as snapshot:
        held = snapshot.files[0].acquire()
    table.remove(held)
    assert reader.closed == 0
    held.release()
    assert reader.closed == 1


def test_move_keeps_the_reader_open_when_it_is_kept():
    table, reader = FileTable(), Reader(3, 5, 9)
    live = make_live(1, reader)
    table.insert(live)
    sealed = table.move(live, S.SEALED, path=Path("/d/sealed/1"), sealed_at_ms=77)
    assert reader.closed == 0
    assert sealed.reader is reader
    table.remove(sealed)
    assert reader.closed == 1


def test_move_with_a_new_reader_closes_the_old_one():
    table, old, new = FileTable(), Reader(), Reader()
    handle = make_handle(1, reader=old)
    table.insert(handle)
    moved = table.move(handle, S.COMPACTED, reader=new)
    assert (old.closed, new.closed) == (1, 0)
    assert moved.reader is new
    assert moved.state is S.COMPACTED


def test_move_against_the_table_of_transitions_is_refused():
    table = FileTable()
    handle = make_handle(1)
    table.insert(handle)
    with pytest.raises(IllegalTransitionError):
        table.move(handle, S.UPLOADED)
    assert table.get(1, "n1") is handle


def test_move_of_an_outdated_handle_is_refused():
    table = FileTable()
    handle = make_handle(1)
    table.insert(handle)
    table.move(handle, S.COMPACTED)
    with pytest.raises(KeyError):
        table.move(handle, S.COMPACTED)


def test_sealing_fixes_what_the_file_holds():
    table, reader = FileTable(), Reader(3, 5, 9)
    live = make_live(1, reader)
    table.insert(live)
    sealed = table.move(live, S.SEALED)
    reader.item_count = 99
    assert (sealed.item_count, sealed.min_time, sealed.max_time, sealed.bytes) == (3, 5, 9, 300)


def test_publishing_takes_what_the_row_says():
    table = FileTable()
    handle = make_handle(1, state=S.COMPACTED)
    table.insert(handle)
    row = make_row(1, bytes=4_321, item_count=9, sidecar_position=1)
    uploaded = table.move(handle, S.UPLOADED, row=row, path=None)
    assert (uploaded.bytes, uploaded.item_count) == (4_321, 9)
    assert uploaded.object_key == row.object_key


def test_replace_swaps_a_merge_in_at_once():
    table = FileTable()
    parts = [make_handle(n) for n in (1, 2, 3)]
    table.insert(*parts)
    merged = make_handle(2, items=2)
    table.replace(parts[:2], [merged])
    with table.snapshot() as snapshot:
        assert snapshot.files == (parts[2], merged)
    assert table.check() == []


def test_refused_change_leaves_the_table_as_it_was():
    table = FileTable()
    first, second = make_handle(1), make_handle(2)
    table.insert(first)
    with pytest.raises(KeyError):
        table.change(add=[second, make_handle(1)])
    with pytest.raises(KeyError):
        table.change(remove=[first, second])
    with table.snapshot() as snapshot:
        assert numbers(snapshot.files) == [1]
    assert table.check() == []


def test_live_file_is_pruned_by_what_it_holds_now():
    table, reader = FileTable(), Reader()
    table.insert(*(make_handle(n, times=(0, 1)) for n in range(1, 41)), make_live(99, reader))
    with table.snapshot() as snapshot:
        assert list(snapshot.file_list.overlap(100, 200)) == []
        reader.item_count, reader.min_time, reader.max_time = 1, 150, 150
        assert numbers(snapshot.file_list.overlap(100, 200)) == [99]
        assert list(snapshot.file_list.overlap(151, None)) == []


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9)), max_size=60),
    st.none() | st.integers(-12, 20),
    st.none() | st.integers(-12, 20),
)
def test_overlap_keeps_exactly_the_files_that_meet_the_span(spans, begin, end):
    table = FileTable()
    spans = [(low, low + length) for low, length in spans]
    table.insert(*(make_handle(n, times=span) for n, span in enumerate(spans, 1)))
    wanted = [
        n
        for n, (low, high) in enumerate(spans, 1)
        if (end is None or low <= end) and (begin is None or high >= begin)
    ]
    with table.snapshot() as snapshot:
        assert numbers(snapshot.file_list.overlap(begin, end)) == wanted[::-1]


def test_local_files_are_listed_oldest_first():
    table = FileTable()
    table.insert(make_handle(1), make_handle(2, state=S.UPLOADED), make_handle(3))
    table.insert(make_handle(4, state=S.COMPACTED), make_handle(5, state=S.COMPACTED))
    with table.snapshot() as snapshot:
        assert numbers(snapshot.file_list.local()) == [1, 3, 4, 5]
        table.move(table.get(4, "n1"), S.UPLOADED, row=make_row(4), path=None)
        table.remove(table.get(1, "n1"))
        assert numbers(snapshot.file_list.local()) == [1, 3, 4, 5]
    with table.snapshot() as snapshot:
        assert numbers(snapshot.file_list.local()) == [3, 5]
        assert len(snapshot.file_list) == 4
    assert table.check() == []


def test_queries_beside_writers_never_meet_a_closed_reader():
    table = FileTable()
    current = [make_handle(n, reader=Reader()) for n in range(1, 6)]
    table.insert(*current)
    met: list[int] = []
    done = threading.Event()

    def query() -> None:
        while not done.is_set():
            with table.snapshot() as snapshot:
                if len(snapshot.files) != 5 or any(f.reader.closed for f in snapshot.files):
                    met.append(1)

    threads = [threading.Thread(target=query) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(1_500):
        place = turn % 5
        current[place] = table.update(current[place], reader=Reader())
    done.set()
    for thread in threads:
        thread.join()
    assert met == []
    before = [handle.reader for handle in current]
    table.remove(*current)
    assert [reader.closed for reader in before] == [1] * 5


@pytest.mark.parametrize("seed", range(4))
def test_many_single_changes_leave_the_list_that_building_it_anew_gives(seed):
    source, table, model = random.Random(seed), FileTable(), {}
    table.insert(*(make_handle(n, times=(n, n + 9)) for n in range(0, 400, 2)))
    with table.snapshot() as snapshot:
        model = {handle.key: handle for handle in snapshot.files}
    for _ in range(150):
        handle = source.choice(list(model.values()))
        match source.choice(("insert", "remove", "move", "swap")):
            case "insert":
                low = source.randrange(500)
                fresh = make_handle(source.randrange(10_000, 1 << 40), times=(low, low + 50))
                table.insert(fresh)
                model[fresh.key] = fresh
            case "remove":
                table.remove(model.pop(handle.key))
            case "move" if handle.state is S.SEALED:
                model[handle.key] = table.move(handle, S.COMPACTED)
            case "move":
                row = make_row(handle.number, uuid=handle.uuid)
                model[handle.key] = table.update(handle, row=row)
            case "swap":
                merged = make_handle(handle.number, times=(0, 900), state=S.UPLOADED)
                table.replace([model.pop(handle.key)], [merged])
                model[merged.key] = merged
    assert table.check() == []
    wanted = [model[key] for key in sorted(model, reverse=True)]
    with table.snapshot() as snapshot:
        assert list(snapshot.files) == wanted
        for begin in range(0, 1000, 90):
            expected = [handle for handle in wanted if handle.overlaps(begin, begin + 5)]
            assert list(snapshot.file_list.overlap(begin, begin + 5)) == expected
