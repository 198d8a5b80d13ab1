"""The compactor's work with the store: claim, publish, then expire, merge, collect.

Files of a kind are published in the order of their numbers, so that the `remote` watermark of a queue is
a prefix: the oldest local file is published once it is compacted, and no other before it. Of two kinds the
first comes first: the log's messages before the index of their keys. A fenced node does nothing here.

Depends on the other modules of this folder and lifecycle.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tierdex.compactor.collect import collect_garbage
from tierdex.compactor.expire import (
    drop_replaced,
    due_for_expiry,
    expire,
    hiding_uuids,
    local_uuids,
)
from tierdex.compactor.local_work import file_unit, local_files
from tierdex.compactor.merge import merge_published, plan_merge
from tierdex.compactor.publish import publish_file
from tierdex.compactor.rounds import HOUSEKEEPING_S, Rounds
from tierdex.compactor.unit import Unit
from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.lifecycle.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tierdex.compactor.kind import Publication
    from tierdex.errors import FencedError
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState

logger = logging.getLogger(__name__)

_UNMERGEABLE_S = 3600.0  # a source that could not be read is tried again after this time


class StoreWork:
    """Yields the claim, publications and housekeeping."""

    def __init__(
        self,
        publications: Sequence[Publication],
        other_states: Callable[[], list[ManifestState]],
    ) -> None:
        """`publications`: what is published, the index's files last; merges and retention are of those.

        `other_states` returns the known manifests of the other nodes.
        """
        self._publications = publications
        self._components = publications[-1].components
        self._other_states = other_states
        settings, clock = self._components.settings, self._components.clock
        self._rounds = Rounds(clock)  # of merges, expiry and collection
        # Each costs a listing, and nothing is due before the grace time.
        self._collections = Rounds(clock, max(HOUSEKEEPING_S, settings.grace_time / 8))
        self._unmergeable: dict[bytes, float] = {}  # uuid -> until when
        self.fenced: FencedError | None = None

    def units(self, *, yes: bool = False) -> Iterator[Unit]:
        """Yield the units that may be done now; `yes` is that of `collect_garbage`."""
        if self.fenced is not None:
            return
        if not self._components.claim.is_claimed:
            yield Unit("claim", "", 0, self._claim)
        for publication in self._publications:
            yield from _next_publication(publication)
        yield from self._housekeeping(yes=yes)

    def look_at_everything(self) -> None:
        """Make housekeeping due at once."""
        self._rounds.ask()
        self._collections.ask()

    def _claim(self) -> int:
        """Claim the node; return 0, since nothing is counted."""
        self._components.claim.get()
        return 0

    def _housekeeping(self, *, yes: bool) -> Iterator[Unit]:
        components = self._components
        if not self._rounds.is_due:
            return
        now = components.clock.monotonic()
        if components.claim.is_claimed:
            rows = due_for_expiry(components)
            if rows:
                yield Unit("expire", "", 0, lambda: len(expire(components, rows)))
            yield Unit("replace", "", 0, lambda: drop_replaced(components, self._other_states()))
            # No file whose local copy still answers: the merged file may take its number.
            waiting = self._unmergeable.items()
            self._unmergeable = {uuid: until for uuid, until in waiting if now < until}
            excluded = self._unmergeable.keys() | local_uuids(components) | hiding_uuids(components)
            if components.forgotten().records:
                yield Unit("remember", "", 0, components.end_forgettings)
            for row in components.files_to_rewrite():
                if row.uuid not in self._unmergeable.keys() | local_uuids(components):
                    one, items = (row,), row.item_count
                    yield Unit("forget", "", items, partial(self._merge, one), row.number)
            group = plan_merge(components.claim.get().state, components.settings, excluded)
            if group:
                items = sum(row.item_count for row in group)
                # The merged file has the number of its newest source, in the folder too while it is written.
                yield Unit("merge", "", items, lambda: self._merge(group), group[-1].number)
        if self._collections.is_due:
            yield Unit("collect", "", 0, lambda: collect_garbage(components, yes=yes))
            self._collections.end()
        self._rounds.end()

    def _merge(self, group: tuple[FileRow, ...]) -> int:
        components = self._components
        try:
            return merge_published(components, group)
        except (CorruptFileError, NotFoundError) as error:
            manifests = components.claim.get().log.paths.manifest_prefix
            if isinstance(error, CorruptFileError) and error.path.startswith(manifests):
                raise
            # Queries name the damaged or lost file; merging goes on without this group.
            until = components.clock.monotonic() + _UNMERGEABLE_S
            self._unmergeable.update((row.uuid, until) for row in group)
            components.progress.fail("merge", "", error, components.clock.now_ms())
            logger.warning("merge", extra={"error": str(error)})
            return 0


def _next_publication(publication: Publication) -> Iterator[Unit]:
    components, kind = publication
    waiting = (handle for handle in local_files(components) if not kind.passes_over(handle))
    oldest = next(waiting, None)
    if oldest is not None and oldest.state is FileState.COMPACTED and kind.may_publish(oldest):
        yield file_unit("publish", components, oldest, partial(publish_file, publication))
