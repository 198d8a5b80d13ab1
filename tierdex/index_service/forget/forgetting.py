"""Forgets entries: finds them, commits what readers hide, follows the request until it is done.

::

    forget   roll our own file -> read all manifests -> scan in every file -> commit the record
             durable before: nothing.  visible after, at each reader's next refresh: the entries are hidden
    resume   the same, until every owner has acknowledged; then the record stays as long as a file holds
             the entries, and a commit ends it

Every step reads everything anew and is safe to repeat: after a crash the record says what was asked. An
owner acknowledges by rolling: what it put before lies in files up to a number, the record's bound. Nodes
whose owner does not tell that it published everything of before are in `waits` and named by the receipt.

Depends on receipt, request_scan, requests, unowned_files, view, lifecycle, answer and the
ground.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tierdex.clock import Bell
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.index_service.answer import Missing
from tierdex.index_service.forget.receipt import (
    HeldFile,
    LingeringObject,
    Receipt,
    RewrittenFile,
    holder_of,
    lingering_objects,
)
from tierdex.index_service.forget.request_scan import RequestScan, ScanResult
from tierdex.index_service.forget.unowned_files import UnownedFiles
from tierdex.index_service.requests.entry_rules import check_places, check_sources
from tierdex.index_service.requests.query import make_names
from tierdex.lifecycle.manifests.forgotten import FORGOTTEN_NODE, AskedHash, Forgetting
from tierdex.lifecycle.manifests.manifest import Change, NodeKind
from tierdex.lifecycle.nodes.node_reading import READING_ERRORS
from tierdex.lifecycle.nodes.shared_node import SharedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tierdex.index_service.answer import Entry
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.opening.open_view import View
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState

logger = logging.getLogger(__name__)

_PAUSE_S = 0.5


class Forgetter:
    """Forgets entries of the store's nodes. Safe to share between threads."""

    def __init__(self, view: View, read_view: ReadView, writer: Writer | None) -> None:
        self._view = view
        self._read_view = read_view
        self._writer = writer
        self._lock = threading.Lock()
        self._node: SharedNode | None = None
        self._unowned = UnownedFiles(view)
        self._request_scan = RequestScan(view.table, read_view, writer)
        self.seal_rolled: Callable[[], None] = lambda: None  # of our own files
        self._seen: dict[bytes, dict[tuple[Any, ...], Entry]] = {}  # record -> location -> entry
        self._acknowledged: set[bytes] = set()  # records for which our file was rolled
        self._signed: set[bytes] = set()  # records since which we have signed

    # -- requests ----------------------------------------------------------------------------------

    def forget(
        self, lookups: object, *, rewrites: bool, only: object = None, dry_run: bool = False
    ) -> Receipt:
        """Begin to forget what these names, {topic, key} or {message_id, topic?}, have now.

        `only` are the [queue, offset] that are meant, None for all. With `dry_run` nothing is committed.
        Raises InvalidRequestError, UnavailableError, and what the store raises.
        """
        self._refuse_narrow_view()
        requests = make_names(self._view.settings, lookups)
        asked = dict.fromkeys(AskedHash(r.topic, r.kind, r.key_hash) for r in requests)
        places = None if only is None else check_places(only)
        record = self._record(tuple(asked), places, rewrites=rewrites)
        return self._advance(record, is_dry=dry_run)

    def forget_sources(
        self, sources: Sequence[str], *, rewrites: bool, dry_run: bool = False, own: bool = False
    ) -> Receipt:
        """Begin to forget every entry that names one of these files of rows; of our own node with `own`.

        Raises as `forget`.
        """
        self._refuse_narrow_view()
        only_node = self._view.settings.node if own else None
        record = self._record((), None, rewrites=rewrites)
        record = replace(record, sources=check_sources(sources), only_node=only_node)
        return self._advance(record, is_dry=dry_run)

    def forget_messages(
        self, asked: Sequence[AskedHash], only: Sequence[tuple[int, int]], *, rewrites: bool
    ) -> Receipt:
        """Begin to forget what these hashes have at the places `only` of our node. Raises as `forget`."""
        record = self._record(tuple(asked), tuple(only), rewrites=rewrites)
        return self._advance(replace(record, only_node=self._view.settings.node))

    def _record(
        self, asked: tuple[AskedHash, ...], only: tuple[tuple[int, int], ...] | None, *, rewrites: bool
    ) -> Forgetting:  # fmt: skip
        uuid, now_ms = self._view.seams.ids.uuid(), self._view.manifests.now_ms()
        return Forgetting(uuid=uuid, time_ms=now_ms, asked=asked, rewrites=rewrites, only=only)

    def resume(self, forgetting: str) -> Receipt:
        """Continue a request, and return its state. Raises NotFoundError once it has ended."""
        self._refuse_narrow_view()
        self._read_view.refresh()
        for record in self._read_view.ages.forgotten.records:
            if record.uuid.hex() == forgetting:
                return self._advance(record)
        raise NotFoundError(
            f"there is no request {forgetting} to forget: it is done, and no object holds its entries"
        )

    def _refuse_narrow_view(self) -> None:
        if self._view.settings.read_nodes is not None:
            raise InvalidRequestError(
                "this reader reads some nodes only: send the request to a reader of all nodes",
                field="read_nodes",
            )

    def pending(self) -> list[str]:
        """Return the requests of which some object may still hold entries, oldest first."""
        self._read_view.refresh()
        self.end_what_is_done()
        records = sorted(self._read_view.ages.forgotten.records, key=lambda each: each.time_ms)
        return [record.uuid.hex() for record in records]

    def wait(self, receipt: Receipt, seconds: float) -> Receipt:
        """Resume until the request is complete, or so many seconds have passed."""
        clock = self._view.seams.clock
        deadline = clock.monotonic() + seconds
        while not receipt.is_complete and clock.monotonic() < deadline:
            clock.wait(Bell(), _PAUSE_S)
            receipt = self.go_on(receipt)
        return receipt

    def go_on(self, receipt: Receipt) -> Receipt:
        """Resume the request of a receipt, also when it was ended meanwhile: then it is done."""
        try:
            return self.resume(receipt.forgetting)
        except NotFoundError:  # the record goes after the last file that holds its entries
            states = self._read_view.ages.states
            gone = [
                RewrittenFile(*file[:3], holder_of(bytes.fromhex(file.uuid), states))
                for file in receipt.holding
            ]
            return replace(
                receipt,
                is_complete=True,
                waiting=[],
                holding=[],
                rewritten=receipt.rewritten + gone,
                manifest=_numbers(states),
            )

    def _advance(self, record: Forgetting, *, is_dry: bool = False) -> Receipt:
        with self._lock:
            if self._writer is not None:
                # What was put before lies in files of lower numbers from here on. Sealed, since after
                # a restart puts go on in the newest file that is not.
                self._writer.roll()
                self.seal_rolled()
            self._hear_owners(record.waits)
            self._read_view.refresh()
            known = {each.uuid: each for each in self._read_view.ages.forgotten.records}
            scan = self._request_scan.scan(known.get(record.uuid, record))
            if is_dry:
                return self._receipt(record, scan)
            record = self._commit(record, scan)
            self._seen_entries(record, scan)  # before the files are written anew
            reasons: dict[bytes, str] = {}
            if record.rewrites and (
                self._write_anew(scan, reasons) or self._delete_lingering(record, scan)
            ):
                self._read_view.refresh()
                scan = self._request_scan.scan(record)
                record = self._commit(record, scan)
            return self._receipt(record, scan, reasons)

    def _write_anew(self, scan: ScanResult, reasons: dict[bytes, str]) -> bool:
        """Write the files anew that no owner does; add why not to `reasons`; say whether any was."""
        known = len(reasons)
        held = [file.handle for file in scan.found.holding if file.handle.row is not None]
        unowned = [handle for handle in held if self._is_nobodys(handle.node)]
        for handle in unowned:
            reason = self._unowned.write_anew(handle, self._read_view.ages.forgotten)
            if reason is not None:
                reasons[handle.uuid] = reason
        return len(unowned) > len(reasons) - known

    def _is_nobodys(self, node: str) -> bool:
        """Return whether no owner is at work at a node, neither ourselves nor another."""
        is_ours = self._writer is not None and node == self._view.settings.node
        return not is_ours and self._unowned.are_of(node)

    def _hear_owners(self, nodes: Sequence[str]) -> None:
        """Read what the owners of these nodes last said; the next refresh takes it up."""
        for node in nodes:
            try:
                self._view.manifests.log_of(node).refresh_live()
            except READING_ERRORS as error:
                # Not swallowed: the refresh meets it again, and the receipt names the node.
                logger.debug("not heard", extra={"node": node, "error": str(error)})

    # -- committing --------------------------------------------------------------------------------

    def _commit(self, record: Forgetting, scan: ScanResult) -> Forgetting:
        """Commit what was found; end the record when every owner acknowledged and no object holds any.

        Returns the record as it was committed last.
        """
        is_known = record.uuid in {each.uuid for each in scan.ages.forgotten.records}
        is_over = (
            not scan.waiting
            and not scan.found.holding
            and not scan.unseen(record)
            and not self._lingering(record, scan)
        )
        if is_over and not is_known:
            return record  # nothing was found
        ends = is_over and self._tell_merges(scan)

        def change(state: ManifestState) -> Change | None:
            known = state.forgettings.get(record.uuid)
            if known is None and is_known:
                return None  # another process has ended it
            if ends:
                return Change(ends=(record.uuid,))
            newer = scan.advance(known or record)
            return None if newer == known else Change(forgettings=(newer,))

        if self._node is None:
            log = self._view.manifests.log_of(FORGOTTEN_NODE)
            self._node = SharedNode.open(log, self._view.seams.ids)
        state = self._node.commit(change)
        self._view.manifests.show()  # our own queries hide it from here on
        return state.forgettings.get(record.uuid, record)

    def _tell_merges(self, scan: ScanResult) -> bool:
        """Make merges that are under way scan again whether their sources are listed.

        One of them may have read what no file holds any more, and commit it after the record's end. So
        before that each shared node, to which they commit, gets a floor, see `JobNode.merge`. Returns
        False when one of them was written since the scan: what was listed meanwhile was not scanned.
        """
        for name, seen in scan.ages.states.items():
            if seen.kind is not NodeKind.SHARED or name == FORGOTTEN_NODE:
                continue
            number = seen.number

            def raise_floor(state: ManifestState, number: int = number) -> Change | None:
                return None if state.number != number else Change(merge_floor=number + 1)

            node = SharedNode(self._view.manifests.log_of(name))
            if node.commit(raise_floor).merge_floor != number + 1:
                return False
        return True

    def _lingering(self, record: Forgetting, scan: ScanResult) -> list[LingeringObject]:
        """Return the objects that were written anew for a record, and are not deleted yet."""
        if not record.rewrites:
            return []
        grace_ms = round(self._view.settings.grace_time * 1000)
        return lingering_objects({ref.uuid for ref in record.files}, scan.ages.states, grace_ms)

    def lingering(self, uuids: Iterable[bytes]) -> list[LingeringObject]:
        """Return the objects of these files that are read no more, and are not deleted yet."""
        grace_ms = round(self._view.settings.grace_time * 1000)
        return lingering_objects(set(uuids), self._read_view.ages.states, grace_ms)

    def end_what_is_done(self) -> int:
        """End the requests of which no object holds an entry any more; return how many."""
        if self._view.settings.read_nodes is not None:
            return 0
        ended = 0
        for record in self._read_view.ages.forgotten.records:
            if record.is_open or self._request_scan.holding(record):
                continue
            with self._lock:
                scan = self._request_scan.scan(record)
                if self._delete_lingering(record, scan):
                    self._view.manifests.show()
                    scan = self._request_scan.scan(record)
                self._commit(record, scan)
            ended += record.uuid not in self._view.manifests.state_of(FORGOTTEN_NODE).forgettings
        if ended:
            self._unowned.collect([FORGOTTEN_NODE])  # its old numbers hold hashes
        return ended

    def _delete_lingering(self, record: Forgetting, scan: ScanResult) -> bool:
        """Delete a record's objects, beyond the grace time, that no owner deletes; say whether any was."""
        now_ms = self._view.manifests.now_ms()
        due = {
            each.node
            for each in self._lingering(record, scan)
            if each.until_ms <= now_ms and self._is_nobodys(each.node)
        }
        self._unowned.collect(due)
        return bool(due)

    # -- what owners do ------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Roll our file, once for each request that waits for this node."""
        if self._writer is not None and (fresh := self._waiting_here() - self._acknowledged):
            self._writer.roll()
            self._acknowledged |= fresh

    def asks_for_sign(self) -> bool:
        """Return whether a request waits, and did not at the last call, for what our next sign says."""
        fresh = self._waiting_here() - self._signed
        self._signed |= fresh
        return bool(fresh)

    def _waiting_here(self) -> set[bytes]:
        node, forgotten = self._view.settings.node, self._read_view.ages.forgotten
        return {record.uuid for record in forgotten.open_records if node in record.waits}

    def files_to_rewrite(self) -> list[FileRow]:
        """Return the published files of our node that hold what is to be left out at once, oldest first."""
        node, ages = self._view.settings.node, self._read_view.ages
        records = [record for record in ages.forgotten.records if record.rewrites]
        if not records or node not in ages.states:
            return []
        listed = ages.states[node].index_files
        rows = {
            handle.uuid: listed[handle.uuid]
            for record in records
            for handle in self._request_scan.holding(record)
            if handle.node == node and handle.uuid in listed
        }
        return sorted(rows.values(), key=lambda row: row.number)

    # -- the receipt -------------------------------------------------------------------------------

    def _receipt(
        self, record: Forgetting, scan: ScanResult, reasons: Mapping[bytes, str] | None = None
    ) -> Receipt:
        """Return how far a record is; `reasons` are why files (uuid) were not written anew."""
        states, known = scan.ages.states, reasons or {}
        holding = [
            HeldFile(f.handle.file_id, f.handle.node, f.handle.uuid.hex(), f.handle.object_key)
            for f in scan.found.holding
        ]
        waiting = [missing for _, missing in scan.waiting]
        if record.rewrites:
            waiting += [
                Missing(f"node:{node}", "holds files that it has not published yet")
                for node in scan.unseen(record)
            ]
            waiting += [
                Missing(f.file_id, known.get(bytes.fromhex(f.uuid), self._why_held(f.node)))
                for f in holding
            ]
        return Receipt(
            forgetting=record.uuid.hex(),
            time_ms=record.time_ms,
            is_complete=not waiting,
            waiting=waiting,
            entries=self._seen_entries(record, scan),
            holding=holding,
            rewritten=scan.rewritten(record),
            lingering=self._lingering(record, scan),
            manifest=_numbers(states),
        )

    def _seen_entries(self, record: Forgetting, scan: ScanResult) -> list[Entry]:
        """Return what this scan found of a record, and all scans before it in this process."""
        listed = {record.uuid, *(each.uuid for each in scan.ages.forgotten.records)}
        self._seen = {uuid: seen for uuid, seen in self._seen.items() if uuid in listed}
        seen = self._seen.setdefault(record.uuid, {})
        for file in scan.found.holding:
            for entry in file.entries:
                seen.setdefault((*entry[:5], str(entry.location)), entry)
        return list(seen.values())

    def _why_held(self, node: str) -> str:
        who = "" if self._unowned.are_of(node) else f": the owner of node {node} does it"
        return f"not written anew yet{who}"


def _numbers(states: Mapping[str, ManifestState]) -> dict[str, int]:
    return {node: state.number for node, state in sorted(states.items())}
