"""The operator's verbs of an open index: roll, compact, look at files and nodes, expire, close.

`Index` inherits these verbs. Each raises ClosedError once the index is closed.

Depends on answer, answer_age, disk_errors, errors, health, opening.components, peers, receipt, storage_layer
and times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.disk_errors import with_disk_errors
from tierdex.errors import ReadOnlyError
from tierdex.index_service.answer import KnownTopics
from tierdex.index_service.answer_age import AnswerAge
from tierdex.index_service.forget.receipt import Receipt, name_of_request
from tierdex.index_service.health import CLOSED, UNREAD, NotReady
from tierdex.index_service.opening.components import QueryGuard, refuse_closed
from tierdex.storage_layer.metered import NOTHING_ASKED, MeteredStore
from tierdex.times import to_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.index_service.answer import Missing
    from tierdex.index_service.file_info import FileInfo, NodeInfo, TableInfo, TopicInfo
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.opening.components import Components, WritingComponents
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.times import Time


class OperatedIndex:
    """The verbs of an operator, over the components of an open index."""

    def __init__(self, components: Components) -> None:
        self._components = components
        writing = components.writing
        self._writer: Writer | None = None if writing is None else writing.writer
        self._guard = QueryGuard(components, self._writer)
        self._age = AnswerAge(components.settings, components.read_view)

    @with_disk_errors
    def roll(self) -> bool:
        """Hand the unsealed file to the compactor; return False when the file is empty and stays."""
        return self._writing().writer.roll()

    @with_disk_errors
    def run_compaction(self, *, yes: bool = False) -> int:
        """Seal, compact, upload and publish all that is due; return the number of units of work done.

        When more than half of the node's objects are in no manifest, garbage collection keeps them
        and the status says so (`orphans_kept`); with `yes` it removes them. Raises the error that
        stopped the work (the store is down, say). No entry is lost by that.
        """
        return self._writing().maintenance.run_all(yes=yes)

    @with_disk_errors
    def refresh(self) -> None:
        """Read every node's manifest now."""
        self._refuse_closed()
        self._components.read_view.refresh()

    @with_disk_errors
    def files(self) -> list[FileInfo]:
        """Return every file of this view, newest first, those that cannot be read last."""
        self._refuse_closed()
        return self._components.catalogue.files()

    @with_disk_errors
    def nodes(self) -> list[NodeInfo]:
        """Return every node of the store as of the last refresh, sorted by name.

        A node whose manifest cannot be read has a `problem`, and `files()` may lack files of it. A row
        without a name says that the store cannot list its nodes. `standing` and what follows it say
        how far each node has published, and whether its owner lives.
        """
        self._refuse_closed()
        return self._components.catalogue.nodes()

    def tables(self) -> list[TableInfo]:
        """Return the lake's tables that topics of this data folder follow, by topic."""
        self._refuse_closed()
        return self._components.tables.infos()

    @property
    def followed_tables(self) -> FollowedTables:
        """The lake's tables that topics of the data folder follow: for who follows and shows them."""
        return self._components.tables

    def store_requests(self) -> dict[str, dict[str, int]]:
        """Return the requests to the store since opening, by purpose and verb.

        The purposes are `manifests` (read, followed and written, with live records), `lookups` (published
        files for queries) and `other` (uploads, merges, garbage). None for a store that was passed in.
        """
        self._refuse_closed()
        store = self._components.store
        return store.by_purpose() if isinstance(store, MeteredStore) else {}

    @with_disk_errors
    def resources(self) -> dict[str, Any]:
        """Return what this index uses since it was opened, for metrics.

        `store`: times by verb, failures and bytes of the requests to its store (`StoreTotals`; nothing for a
        store that was passed in); `disk`: what waits for the store and what is free (`DiskRoom`), None
        when nothing is put here; `manifest_age_s`: seconds since what answers are made of was last read;
        `pages`: how its cache of pages was used (`CacheUse`); `sidecar_fetches`: sidecars that were not here;
        `lookup_stages`: a `Histogram` of each stage of lookups that memory did not answer (query/stages.py);
        `peers`: questions to peers by outcome, none where none are asked.
        """
        self._refuse_closed()
        components = self._components
        store, writing, view = components.store, components.writing, components.read_view
        return {
            "store": store.totals() if isinstance(store, MeteredStore) else NOTHING_ASKED,
            "disk": None if writing is None else writing.writer.room(),
            "manifest_age_s": max(0, view.now_ms() - view.ages.read_ms()) / 1000,
            "pages": components.pages.use(),
            "sidecar_fetches": components.sidecars.fetches,
            "lookup_stages": components.queries.stage_times.totals(),
            "peers": {} if components.queries.peers is None else components.queries.peers.counts(),
        }

    def clock_skew(self) -> float | None:
        """Return how many seconds this machine's clock is ahead of the store's; None: not known.

        The times of answers and nodes are the store's.
        """
        self._refuse_closed()
        skew_ms = self._components.read_view.skew_ms
        return None if skew_ms is None else skew_ms / 1000

    @with_disk_errors
    def unpublished(self, question: Any) -> bytes:
        """Answer a reader elsewhere from what is not published here; see peers/messages.py.

        Both are Arrow streams, `question` read already. Raises InvalidRequestError, OwnershipError when
        the node is not ours (ReadOnlyError: this index owns no node).
        """
        from tierdex.index_service.peers.answering import UnpublishedEntries
        from tierdex.index_service.peers.messages import decode_question, encode_answer

        writing, components = self._writing(), self._components
        entries = UnpublishedEntries(
            components.settings,
            components.table,
            components.read_view,
            writing.writer,
            writing.claim,
        )
        return encode_answer(entries.answer(decode_question(question)))

    @with_disk_errors
    def file(self, file_id: str) -> FileInfo:
        """Return one file, with what lists do not tell: `compacted_at`, `compaction_s`, `published_at`.

        Raises NotFoundError, and what the store raises.
        """
        self._refuse_closed()
        return self._components.catalogue.file(file_id, self._components.store)

    @with_disk_errors
    def verify_file(self, file_id: str) -> list[str]:
        """Check every checksum and invariant of one file; return what is broken, in words."""
        self._refuse_closed()
        return self._components.catalogue.verify(file_id)

    def topics(self) -> list[str]:
        """Return the topics of this view, sorted, with those of every put that returned."""
        with self._guard:
            self._components.read_view.catch_up()
            return self._components.catalogue.topics()

    def known_topics(self, *, fresh_within: float | None = None) -> KnownTopics:
        """Return the same, until when these are all, and which nodes may hold others.

        `fresh_within` (seconds; None: the setting): a list older than that says because of which nodes. So
        it does of files that are gone or damaged.
        """
        limit = self._age.limit(fresh_within)
        with self._guard:
            self._age.prepare(limit)
            self._components.read_view.catch_up()
            ages, names, missing = self._listed_topics()
            if missing:  # what is listed may be gone since the manifests were read
                self._components.read_view.refresh()
                ages, names, missing = self._listed_topics()
            missing += self._age.older(limit, ages)
            return KnownTopics(names, ages.as_of(), ages.unasked(), tuple(missing))

    def _listed_topics(self) -> tuple[NodeAges, list[str], list[Missing]]:
        """Return the ages, the topics of files that are as new or newer, and the files without theirs."""
        ages = self._components.read_view.ages
        missing: list[Missing] = []
        return ages, self._components.catalogue.topics(missing), missing

    def topic_infos(self) -> list[TopicInfo]:
        """Return the same topics with the number of their items and their times.

        Published files tell them by two small requests each, once; a call sends them to at most 32 files,
        the newest that are not known yet, and says of the others what it cannot count (`uncounted`).
        """
        with self._guard:
            self._components.read_view.catch_up()
            return self._components.catalogue.topic_infos()

    def health(self) -> list[NotReady]:
        """Return the reasons why this index is not ready for use; empty when it is. Raises nothing.

        The reasons: the index is closed, its owner is fenced, the owner can open no file for puts
        (the disk is full, or fails), or a reader has not read the manifests once.
        """
        refusal = self._components.refusal
        if refusal is not None:
            return [NotReady(CLOSED, str(refusal))]
        writing = self._components.writing
        if writing is not None:
            return writing.writer.health()
        unread = self._components.read_view.unread()
        return [NotReady(UNREAD, "; ".join(unread[:3]))] if unread else []

    @with_disk_errors
    def compaction_status(self) -> dict[str, Any]:
        """Return backlog, running job, last error, totals and the oldest unpublished age."""
        self._refuse_closed()
        return self._components.catalogue.compaction_status()

    @with_disk_errors
    def expire(self, *, before: Time, dry_run: bool = False) -> list[FileInfo]:
        """Drop published files of this node that were sealed before `before` (ms); return them."""
        self._writing()
        return self._components.catalogue.expire(to_ms(before, "before"), dry_run=dry_run)

    @with_disk_errors
    def forget(
        self,
        lookups: Sequence[Mapping[str, Any]],
        *,
        now: bool = False,
        only: Sequence[tuple[int, int]] | None = None,
        wait: float = 0.0,
        dry_run: bool = False,
    ) -> Receipt:
        """Hide what keys and message IDs have now, on every node, and leave it out of files from now on.

        `lookups` are {topic, key} or {message_id, topic?}. What is put later shows. All entries under a
        name's hash are meant: those that a query returns. When the messages themselves were compared,
        `only` names theirs, (queue_id, offset), and no others are touched. With `now` the files are written
        anew at once: by their owners, and by this call where no owner is at work. Waits up to `wait` seconds
        until every owner has acknowledged; the receipt says whether it is complete, and names who is missing.
        With `dry_run` it only looks.

        Raises InvalidRequestError, UnavailableError; OwnershipError when the node `forgotten` has an owner.
        """
        self._refuse_closed()
        forgetter = self._components.forgetter
        receipt = forgetter.forget(lookups, rewrites=now, only=only, dry_run=dry_run)
        return receipt if dry_run else self._see_through(receipt, wait)

    @with_disk_errors
    def forget_sources(
        self,
        sources: str | Sequence[str],
        *,
        now: bool = False,
        wait: float = 0.0,
        dry_run: bool = False,
        own: bool = False,
    ) -> Receipt:
        """Hide every entry that names one of these files of rows, by its `source`, as `forget` hides names.

        On every node, or with `own` on this one. What is put later shows. The receipt lists no entries: there
        are as many as the files had rows and keys; `holding` names the index files that have some.
        """
        self._refuse_closed()
        forgetter = self._components.forgetter
        receipt = forgetter.forget_sources(
            [sources] if isinstance(sources, str) else sources, rewrites=now, dry_run=dry_run, own=own
        )  # fmt: skip
        return receipt if dry_run else self._see_through(receipt, wait)

    @with_disk_errors
    def resume_forgetting(self, forgetting: str | Receipt, *, wait: float = 0.0) -> Receipt:
        """Continue a request to forget, named or by its receipt.

        Raises NotFoundError for a name of which no object holds entries any more.
        """
        self._refuse_closed()
        forgetter = self._components.forgetter
        if isinstance(forgetting, Receipt):
            return self._see_through(forgetter.go_on(forgetting), wait)
        return self._see_through(forgetter.resume(name_of_request(forgetting)), wait)

    @with_disk_errors
    def forgettings(self) -> list[str]:
        """Return the requests to forget of which some object may still hold entries, oldest first."""
        self._refuse_closed()
        return self._components.forgetter.pending()

    def _see_through(self, receipt: Receipt, wait: float) -> Receipt:
        """Let our own compactor rewrite files; wait for the other owners."""
        forgetter, writing = self._components.forgetter, self._components.writing
        if receipt.waits_for_files and writing is not None:
            writing.maintenance.run_all()
            receipt = forgetter.go_on(receipt)
        return forgetter.wait(receipt, wait)

    @with_disk_errors
    def close(self) -> None:
        """Bring everything received to `disk`, stop the background work, release the folder.

        Raises UnavailableError when the disk fails. The index is closed all the same: entries at level
        `os` stay in the folder, entries that were only `received` are lost.
        """
        self._components.close()

    def _refuse_closed(self) -> None:
        refuse_closed(self._components)

    def _writing(self) -> WritingComponents:
        self._refuse_closed()
        if self._components.writing is None:
            raise ReadOnlyError(
                "this index was opened read-only; open it with read_only=False and a data folder"
            )
        return self._components.writing
