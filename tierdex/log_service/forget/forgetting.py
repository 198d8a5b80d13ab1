"""Forgets messages: finds them, hides them durably, tells the index, and removes their bytes from files.

::

    find     all that is durable, with the timer's delivery at rest: nothing moves from queue to queue
    roll     the journal is given up, and no blocks of before are taken over by another
    record   FORGOTTEN: durable, then visible; from here on no read shows them, whatever crashes
    index    forgets the entries, under every name of each message; after a crash the record says what is left
    files    compaction and merges leave the messages empty; with `rewrites` each file is written anew at once
    end      nothing holds any of it, and the grace time is over: the record lets the request go

Every step is safe to repeat. Only durable messages are forgotten: their offsets are never given again.
Depends on compactor, errors, index_service, lifecycle and the rest of log_service.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tierdex.compactor.rounds import Rounds
from tierdex.compactor.unit import Unit
from tierdex.errors import CorruptFileError, InvalidRequestError, NotFoundError, TierdexError
from tierdex.index_service.answer import Missing
from tierdex.index_service.forget.receipt import (
    ForgetReceipt,
    ForgottenMessage,
    HeldFile,
    RewrittenFile,
)
from tierdex.index_service.requests.entry_rules import check_places
from tierdex.index_service.requests.query import make_names
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifests.forgotten import AskedHash
from tierdex.lifecycle.paths import make_file_id
from tierdex.log_service.forget.forget_search import Searched, add_forgotten, find_places, has_any
from tierdex.log_service.levels import Level
from tierdex.log_service.notes.forgotten_messages import ForgetRequest, HeldBefore
from tierdex.log_service.notes.forgotten_names import NamedPlaces
from tierdex.log_service.read.queue_parts import STORE_ERRORS
from tierdex.log_service.timer.delayed_rows import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tierdex.index_service.forget.receipt import LingeringObject, Receipt
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.log_service.answer import MissingMessages
    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.appender import Appender
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.append.next_journal import NextJournal
    from tierdex.log_service.files.kept_copies import KeptCopies
    from tierdex.log_service.files.queue_table import QueueTable
    from tierdex.log_service.forget.forget_search import FoundPlaces
    from tierdex.log_service.keys.log_index import LogIndex
    from tierdex.log_service.notes.forgotten_messages import ForgottenRecord
    from tierdex.log_service.read.reads import LogReads
    from tierdex.log_service.tiering.log_merge import LogMerging
    from tierdex.log_service.timer.timer import Timer
    from tierdex.seams import Seams
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

_JOURNALS = (FileState.UNSEALED, FileState.SEALED)


class ForgetfulLog(NamedTuple):
    """The parts of an open log that forget."""

    settings: Settings
    seams: Seams
    table: FileTable
    record: ForgottenRecord
    reads: LogReads
    queues: QueueTable
    active: ActiveJournal
    committer: Committer
    appender: Appender
    next_journal: NextJournal
    timer: Timer
    damaged: dict[bytes, str]  # by uuid: files that stay as they are, and why
    copies: KeptCopies
    quarantined: Callable[[], Sequence[MissingMessages]]
    merging: LogMerging
    carry: Callable[[], None]  # lets the store have the record, if there is one
    asked_index: Callable[[], LogIndex]  # raises InvalidRequestError without one


class LogForgetting:
    """Forgets messages of one log. Safe to share between threads."""

    def __init__(self, log: ForgetfulLog) -> None:
        self._log = log
        self._lock = threading.Lock()  # one writer of the record
        self._holds: dict[tuple[bytes, bytes, FileState], bool] = {}  # request, file in a state
        self._rounds = Rounds(log.seams.clock)
        through = max((each.through for each in log.record.current.requests), default=-1)
        if through >= 0:
            log.next_journal.take_over_none(through)

    # -- requests ----------------------------------------------------------------------------------------

    def forget(
        self, lookups: object, *, only: object = None, rewrites: bool, dry_run: bool = False
    ) -> ForgetReceipt:
        """Begin to forget what these names, {topic, key} or {message_id, topic?}, have now.

        `only` are the [queue, offset] that are meant, None for all, with what waits for its `deliver_at`.
        Raises InvalidRequestError, also without an index; UnavailableError: nothing was forgotten.
        """
        log = self._log
        log_index = log.asked_index()
        requests = make_names(log.settings, lookups)
        meant = None if only is None else frozenset(check_places(only))
        log.reads.refuse_unknown()
        with self._lock:
            with log.timer.at_rest():
                self._make_durable()
                found = find_places(Searched(log_index, log.reads, log.queues), requests)
                if rewrites:
                    add_forgotten(log.record.current, requests, found)
                if meant is not None:
                    found.keep(meant)
                request = self._make_request(found, rewrites=rewrites)
                if not dry_run and (found.places or found.unsearched):
                    request = self._with_held(self._roll(request))
                    # Durable before: every message of it. Visible after: none, in no read.
                    log.record.keep(log.record.current.with_request(request))
            if not dry_run:
                request = self._tell(request)
        return self._receipt(request, is_dry=dry_run)

    def resume(self, forgetting: str) -> ForgetReceipt:
        """Continue a request, and return its state. Raises NotFoundError once it has ended."""
        with self._lock:
            request = self._tell(self._request(forgetting))
        return self._receipt(request)

    def pending(self) -> list[str]:
        """Return the requests of which a file may still hold something, oldest first."""
        return [request.uuid.hex() for request in self._log.record.current.requests]

    # -- the worker's ------------------------------------------------------------------------------------

    def look_at_everything(self) -> None:
        """Make the next step due now."""
        self._rounds.ask()

    def units(self) -> Iterator[Unit]:
        """Yield what is to be done, now and then only."""
        if not self._rounds.is_due:
            return
        if self._log.record.current.requests:
            yield Unit("remember", "", 0, self.go_on)
            for handle in self.files_to_rewrite():
                rewrite = partial(self._log.merging.rewrite, handle)
                yield Unit("forget", handle.file_id, handle.item_count, rewrite, handle.number)
        self._rounds.end()

    def files_to_rewrite(self) -> list[FileHandle]:
        """Return the files that are to be written anew at once, and may be now, oldest first."""
        wanted = [each for each in self._log.record.current.requests if each.rewrites]
        holding = {handle for request in wanted for handle, _ in self._holding(request)}
        ready = holding & self._log.merging.rewritable()
        return sorted(ready, key=lambda handle: handle.number)

    def go_on(self) -> int:
        """Update store and index; end requests that are over; return how many requests advanced."""
        done = 0
        for each in self._log.record.current.requests:
            with self._lock:
                request = self._log.record.current.get(each.uuid)
                if request is None:
                    continue
                told = self._tell(request)
                done += told != request or self._end(told)
        return done

    # -- private: the steps ------------------------------------------------------------------------------

    def _request(self, forgetting: str) -> ForgetRequest:
        found = None
        with suppress(ValueError):
            found = self._log.record.current.get(bytes.fromhex(forgetting))
        if found is None:
            raise NotFoundError(
                f"there is no request {forgetting} to forget messages: it is done, and no file holds them"
            )
        return found

    def _make_durable(self) -> None:
        committer = self._log.committer
        with committer.append_lock:
            commit = committer.join(Level.DISK)
        committer.wait(commit, Level.DISK)

    def _make_request(self, found: FoundPlaces, *, rewrites: bool) -> ForgetRequest:
        log = self._log
        places = found.places.items()
        named = NamedPlaces.of({(at.name, at.queue_id, at.offset): names for at, names in places})
        return ForgetRequest(
            uuid=log.seams.ids.uuid(),
            number=self._next_number(),
            time_ms=log.seams.clock.now_ms(),
            named=named,
            rewrites=rewrites,
            unindexed=named.topics,
            unsearched=tuple(found.unsearched),
            elsewhere=tuple(sorted(found.elsewhere)),
        )

    def _next_number(self) -> int:
        """Return a number above all that the record, or a file of an owner before us, knows."""
        with self._own_files() as files:
            known: list[int] = [handle.reader.forgets for handle in files]
        return max([self._log.record.current.number, *known]) + 1

    def _roll(self, request: ForgetRequest) -> ForgetRequest:
        """Give the journal up that takes appends, and all blocks of earlier ones behind its end."""
        log = self._log
        with log.committer.commit_lock, log.committer.append_lock:
            with self._own_files() as files:
                through = max((handle.number for handle in files), default=0)
            log.next_journal.take_over_none(through)
            log.appender.roll("forgets")
        return replace(request, through=through)

    def _with_held(self, request: ForgetRequest) -> ForgetRequest:
        held = (
            HeldBefore(handle.number, handle.uuid, handle.state in _JOURNALS)
            for handle, _ in self._holding(request)
        )
        return replace(request, held=tuple(sorted(held)))

    def _tell(self, request: ForgetRequest) -> ForgetRequest:
        """Bring store and index up to date with the record. Holding `_lock`."""
        if not request.is_carried and self._log.record.current.get(request.uuid) is not None:
            try:
                self._log.carry()
            except (TierdexError, OSError) as error:  # not swallowed: the receipt says it
                logger.warning("the store was not told", extra={"error": str(error)})
            else:
                request = replace(request, is_carried=True)
                self._log.record.keep(self._log.record.current.with_request(request))
        return self._tell_index(request)

    def _tell_index(self, request: ForgetRequest) -> ForgetRequest:
        """Make the index forget the entries; what fails stays in the record. Holding `_lock`."""
        for topic in request.unindexed:
            names, only = request.named.of_topic(topic)
            asked = [AskedHash(topic, kind, name_hash) for kind, name_hash in names]
            try:
                forgetter = self._log.asked_index().forgetter
                receipt = forgetter.forget_messages(asked, only, rewrites=request.rewrites)
            except (TierdexError, OSError) as error:  # not swallowed: the receipt says it
                logger.warning("not forgotten by the index yet", extra={"error": str(error)})
                return request
            left = tuple(each for each in request.unindexed if each != topic)
            request = replace(request, unindexed=left, told=(*request.told, receipt.forgetting))
            if self._log.record.current.get(request.uuid) is not None:
                self._log.record.keep(self._log.record.current.with_request(request))
        return request

    def _end(self, request: ForgetRequest) -> bool:
        """Remove a request of which nothing is left; return whether the record changed. Holding `_lock`.

        While the index is still to be told, the record alone knows which entries it has to forget.
        """
        log, now_ms = self._log, self._log.seams.clock.now_ms()
        if request.unindexed or any(True for _ in self._holding(request)):
            return False
        if request.done_ms is None:
            log.record.keep(log.record.current.with_request(replace(request, done_ms=now_ms)))
            return True
        if now_ms - request.done_ms < log.settings.grace_time * 1000 or self._lingering(request):
            return False
        log.record.keep(log.record.current.without(request.uuid))
        return True

    # -- private: what files hold ------------------------------------------------------------------------

    @contextmanager
    def _own_files(self) -> Iterator[list[FileHandle]]:
        """Pin the files of this node, oldest first: compaction closes what it has replaced."""
        with self._log.table.snapshot() as snapshot:
            node = self._log.settings.node
            yield [handle for handle in snapshot.file_list.iterate() if handle.node == node]

    def _holding(self, request: ForgetRequest) -> Iterator[tuple[FileHandle, str | None]]:
        """Yield the files that hold something of a request, oldest first; why, if they do not say."""
        with self._own_files() as files:
            for handle in files:
                try:
                    if self._may_hold(handle, request):
                        yield handle, self._log.damaged.get(handle.uuid)
                except (CorruptFileError, *STORE_ERRORS) as error:
                    yield handle, str(error)

    def _may_hold(self, handle: FileHandle, request: ForgetRequest) -> bool:
        """Return whether a file has something of a request. CorruptFileError, and what the store raises."""
        if handle.state is FileState.UNSEALED:
            return handle.number <= request.through or has_any(handle, request.places)
        key = request.uuid, handle.uuid, handle.state  # compaction leaves messages out
        held = self._holds.get(key)
        if held is None:
            held = handle.reader.forgets < request.number and has_any(handle, request.places)
            self._holds[key] = held
        return held

    # -- private: the receipt ----------------------------------------------------------------------------

    def _receipt(self, request: ForgetRequest, *, is_dry: bool = False) -> ForgetReceipt:
        holding, waiting = [], []
        for handle, why in self._holding(request):
            file = HeldFile(
                handle.file_id, handle.node, handle.uuid.hex(),
                None if handle.row is None else handle.row.object_key,
            )  # fmt: skip
            holding.append(file)
            if request.rewrites:
                waiting.append(Missing(handle.file_id, why or "not written anew yet"))
        waiting += [Missing(file, reason) for file, reason in request.unsearched]
        waiting += [
            Missing(each.file, "may hold some: it cannot be read or rewritten")
            for each in self._log.quarantined()
        ]
        waiting += [
            Missing(f"{path.parent.name}/{path.name}", "a local copy that could not be removed yet")
            for path in self._log.copies.remove_left()
        ]
        waiting += [
            Missing("index", f"has not forgotten entries of topic {topic} yet")
            for topic in ([] if is_dry else request.unindexed)
        ]
        if not is_dry and not request.is_carried and len(request.places):
            why = "was not told: the next owner of the node would see them"
            waiting.append(Missing("store", why))
        told = [] if is_dry else self._receipts_of_index(request, waiting)
        held = {bytes.fromhex(file.uuid) for file in holding}
        shown = [ForgottenMessage(name.decode(), *at) for name, *at in request.places]
        receipt = ForgetReceipt(
            forgetting=request.uuid.hex(),
            time_ms=request.time_ms,
            is_complete=False,
            waiting=waiting,
            messages=[each for each in shown if each.topic != TIMER_TOPIC],
            held_count=sum(each.topic == TIMER_TOPIC for each in shown),
            elsewhere=list(request.elsewhere),
            holding=holding,
            rewritten=[self._rewritten(file) for file in request.held if file.uuid not in held],
            lingering=self._lingering(request),
        )
        for each in told:
            receipt.waiting.extend(each.waiting)
            receipt.entries.extend(each.entries)
            receipt.holding.extend(each.holding)
            receipt.rewritten.extend(each.rewritten)
            receipt.lingering.extend(each.lingering)
            receipt.manifest.update(each.manifest)
        return replace(receipt, is_complete=not receipt.waiting)

    def _receipts_of_index(self, request: ForgetRequest, waiting: list[Missing]) -> list[Receipt]:
        receipts = []
        for told in request.told:
            try:
                receipts.append(self._log.asked_index().forgetter.resume(told))
            except NotFoundError:
                continue  # it has ended: no index file holds an entry
            except (TierdexError, OSError) as error:
                waiting.append(Missing("index", str(error)))
        return receipts

    def _rewritten(self, file: HeldBefore) -> RewrittenFile:
        """Return what a file has become: the object that holds its other messages, if that is published."""
        node, uuid, key = self._log.settings.node, file.uuid, None
        with self._own_files() as files:
            rows = [handle.row for handle in files if handle.row is not None]
        for row in rows:
            if uuid in (row.uuid, *(part.uuid for part in row.parts)):
                key = row.object_key
        return RewrittenFile(make_file_id(file.number, node), node, uuid.hex(), key)

    def _lingering(self, request: ForgetRequest) -> list[LingeringObject]:
        """Return the objects that were written anew, and are not deleted yet."""
        uuids = [file.uuid for file in request.held if not file.is_journal]
        with suppress(InvalidRequestError):  # without an index there is no store
            return self._log.asked_index().forgetter.lingering(uuids) if uuids else []
        return []
