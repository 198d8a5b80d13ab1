"""The next queue table of a node: when it is written, and which files it covers.

A table is uploaded before the commit that names it, and a file's ends are in a table before the file leaves
the list. Rules and bytes of a table: `queue_table`.

Depends on compactor.components, queue_table, errors and lifecycle.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tierdex.compactor.queue_table import QueueEnds
from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.changes import TableDraft

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tierdex.compactor.components import CompactorComponents
    from tierdex.indexfile.compacted.sidecar import Sidecar
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState

logger = logging.getLogger(__name__)

READS: Final = 3  # of a file that leaves the list, until its ends are given up
PAYS_FOR_A_TABLE: Final = 50  # bytes published since the last one, for each byte of the next
_SMALL: Final = 4096  # a table's bytes when it is small, about
_ROW_BYTES: Final = 16


def table_if_it_pays(
    components: CompactorComponents, row: FileRow, reader: Sidecar
) -> TableDraft | None:
    """Upload the next table, with the ends of the file `row`, when enough bytes were published since."""
    state = components.claim.get().state
    published = row.bytes + sum(state.files[uuid].bytes for uuid in state.uncovered)
    before = _SMALL if state.queue_table is None else max(_SMALL, state.queue_table.bytes)
    expected = before + _ROW_BYTES * len(reader.plan.queues)
    if expected * PAYS_FOR_A_TABLE > published:
        return None
    return _draft(components, state, [QueueEnds.of_sidecar(reader)])


def cover(components: CompactorComponents, uuids: Iterable[bytes]) -> None:
    """Commit a table before `uuids` leave the list, if one of them tells more than the newest table."""
    node = components.claim.get()
    leaving = node.state.uncovered.intersection(uuids)
    if not leaving:
        return
    draft = _draft(components, node.state, [], leaving)
    # Durable before the files leave the list: no watermark falls.
    node.commit(lambda state: changes.cover_ends(state, draft))


def _draft(
    components: CompactorComponents,
    state: ManifestState,
    more: list[QueueEnds],
    leaving: Collection[bytes] = (),
) -> TableDraft:
    """Upload a table of what the newest one, the uncovered files and `more` tell.

    A file that cannot be read stays uncovered: a later table tells its ends. One of `leaving` is read
    again; then it is given up, since retention must end: the watermark is too low from there on, and
    a broker replays more, which is harmless.
    """
    told = [*more]
    if state.queue_table is not None:
        told.insert(0, components.queue_tables.read(state.queue_table))
    covered = set(leaving)
    for uuid in state.uncovered:
        ends = _ends_of(components, state.files[uuid], reads=READS if uuid in leaving else 1)
        if ends is not None:
            told.append(ends)
            covered.add(uuid)
    ref = components.queue_tables.write(
        state.node, state.number, components.ids.uuid(), QueueEnds.join(told)
    )
    return TableDraft(ref, state.queue_table, frozenset(covered))


def _ends_of(components: CompactorComponents, row: FileRow, *, reads: int) -> QueueEnds | None:
    """Return what a published file tells; None when no read gives it as it was written."""
    for _ in range(reads):  # damage may lie in between: then the next read is another
        try:
            return QueueEnds.of_sidecar(components.reader_of_row(row).sidecar())
        except (CorruptFileError, NotFoundError) as error:
            logger.warning("ends not told", extra={"object": row.object_key, "error": str(error)})
    return None
