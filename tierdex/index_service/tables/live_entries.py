"""From entries of a followed table's topic to those of live rows, at one snapshot.

The search below knows nothing of tables: it finds every entry that was ever put under a key. Entries of files
that the snapshot has not, and of rows that it calls deleted, are left out here, and the search goes on behind
them until a page is full. An answer names its table and snapshot also where it is empty.

Depends on answer, errors, files, followed_tables and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.files.object_file import address_below
from tierdex.index_service.answer import Answer, Missing, TableSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tierdex.index_service.answer import Entry
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.index_service.tables.table_state import TableFile, TableState

FILE: Final = "table_file"
POSITION: Final = "position"
_PAGE_LEAST: Final = 64


class View(NamedTuple):
    """A topic's table at one step; `state` None: no snapshot of it was indexed yet."""

    topic: str
    state: TableState | None
    step: int
    seen: TableSeen | None
    missing: tuple[Missing, ...]


class LiveEntries:
    """Makes answers of live rows. Safe to share between threads."""

    def __init__(self, tables: FollowedTables, now_ms: Callable[[], int]) -> None:
        self._tables = tables
        self._now_ms = now_ms

    def view(self, topic: str, snapshot: str | None = None) -> View:
        """Return what an answer of the topic will be of: taken before its entries are searched.

        Raises NotFoundError for a snapshot that is not kept.
        """
        state = self._tables.state_of(topic)
        damage = self._tables.damaged.get(topic)
        missing = [] if damage is None else [Missing(f"table:{topic}", damage)]
        if state is None or state.newest is None:
            if damage is None:
                name = topic if state is None else state.head.table
                reason = "no snapshot of the table is indexed yet"
                missing.append(Missing(f"table:{name}", reason))
            return View(topic, None, 0, None, tuple(missing))
        asked = state.snapshot_of(snapshot)
        look = self._tables.last_look(topic)
        looked_at, behind = look.get("looked_at"), look.get("behind")
        seen = TableSeen(
            state.head.table, asked.snapshot, asked.version, asked.time_ms, looked_at, behind
        )
        longest = state.head.options.get("max_staleness")
        if snapshot is None and longest is not None:
            age_s = (self._now_ms() - (looked_at or 0)) / 1000
            if age_s > float(longest):
                trouble = look.get("trouble") or "nothing follows it"
                reason = f"the table was last looked at {age_s:.0f} s ago: {trouble}"
                missing.append(Missing(f"table:{state.head.table}", reason))
        return View(topic, state, asked.step, seen, tuple(missing))

    def views(self, topic: str | None, snapshot: str | None = None) -> dict[str, View]:
        """Return the view of a topic's table; of a lookup without a topic, those of every table."""
        topics = list(self._tables.topics) if topic is None else [topic]
        return {each: self.view(each, snapshot) for each in topics}

    def page(
        self,
        views: Mapping[str, View],
        max_count: int,
        cursor: str | None,
        told: Answer,
        ask: Callable[[int, str | None], Answer],
    ) -> Answer:
        """Return one page of live rows. `told` is the page of entries at `cursor`, `ask` returns others."""
        entries: list[Entry] = []
        missing: list[Missing] = []
        answer = told
        while True:
            missing += told.missing
            live, lost = self._live(views, told.entries)
            missing += lost
            room = max_count - len(entries)
            if len(live) > room:  # the page is asked again, up to the last entry that has room
                told = ask(live[room - 1][0] + 1, cursor)
                live = live[:room]
            entries += [entry for _, entry in live]
            cursor = told.next_cursor
            if cursor is None or len(entries) == max_count:
                break
            told = ask(max(_PAGE_LEAST, max_count - len(entries)), cursor)
            answer.as_of = min(answer.as_of, told.as_of)
        answer.entries, answer.next_cursor = entries, cursor
        return _finished(answer, views, missing)

    def _live(
        self, views: Mapping[str, View], entries: Iterable[Entry]
    ) -> tuple[list[tuple[int, Entry]], list[Missing]]:
        """Return the live entries, with where they stand among `entries`, and what cannot be told."""
        kept: list[tuple[int, Entry]] = []
        missing: list[Missing] = []
        for at, entry in enumerate(entries):
            place = entry.location
            view = views.get(entry.topic)
            if place is None or FILE not in place:
                kept.append((at, entry))
                continue
            if view is None:  # a table that is newer than the views
                continue
            file = _file_of(view, place[FILE])
            life = None if file is None else file.life_at(view.step)
            if file is None or life is None:
                continue
            if life.deletes is not None:
                try:
                    deleted = self._tables.deletes(view.topic, life.deletes)
                except (CorruptFileError, OSError) as error:
                    missing.append(Missing(file.path, f"its deleted rows cannot be read: {error}"))
                    continue
                found = int(np.searchsorted(deleted, np.uint64(place[POSITION])))
                if found < len(deleted) and int(deleted[found]) == place[POSITION]:
                    continue
            kept.append((at, _shown(view, file, entry)))
        return kept, missing


def _file_of(view: View, number: int) -> TableFile | None:
    state = view.state
    return None if state is None or number >= len(state.files) else state.files[number]


def _shown(view: View, file: TableFile, entry: Entry) -> Entry:
    assert view.state is not None
    assert view.seen is not None
    assert entry.location is not None
    place = {
        "table": view.seen.table,
        "snapshot": view.seen.snapshot,
        "file": file.path,
        "position": entry.location[POSITION],
    }
    return entry._replace(location=place, source=address_of_file(view.state, file))


def address_of_file(state: TableState, file: TableFile) -> str:
    """Return the path or URL of a data file."""
    return address_below(state.head.root, file.path)


def _finished(answer: Answer, views: Mapping[str, View], missing: list[Missing]) -> Answer:
    stale = [each for view in views.values() for each in view.missing]
    answer.missing = list(dict.fromkeys([*stale, *missing]))
    answer.complete = answer.complete and not answer.missing
    seen = [view.seen for view in views.values() if view.seen is not None]
    answer.table = seen[0] if len(views) == 1 and seen else None
    answer.as_of = min([answer.as_of, *(each.time_ms for each in seen)])
    return answer


def check_snapshot(snapshot: object) -> str | None:
    """Return a snapshot as it was asked for. Raises InvalidRequestError for what can be none."""
    if snapshot is None:
        return None
    if isinstance(snapshot, bool) or not isinstance(snapshot, int | str) or snapshot == "":
        raise InvalidRequestError("must be a snapshot's ID or version", field="snapshot")
    return str(snapshot)
