"""Asks live owners for their unpublished entries, in parallel and within a deadline.

::

    live records -> who may be asked (`peers`, `peer_allow`) -> one question each   `begin`
                    meanwhile the store's files are searched
                                                             -> handles for one query   `finish`

Addresses come from live records in the store or from the settings, never from a caller, and our key is sent
to hosts only that the settings name: with `auto` those that `peer_allow` matches, with a list those in it. A
redirect is not followed. A peer asks no other peer. An owner that does not answer, or answers wrongly, is
named as missing; who says that files were listed meanwhile is asked once more after a refresh.

Depends on messages, fetched_file, answer, httpx2, connections and errors.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx2

from tierdex.connections import trace_headers, trusting
from tierdex.errors import TierdexError, UnavailableError, reason_of
from tierdex.index_service.answer import Missing
from tierdex.index_service.peers.fetched_file import fetched_handle
from tierdex.index_service.peers.messages import (
    Owner,
    Question,
    decode_answer,
    encode_question,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from tierdex.clock import Clock
    from tierdex.index_service.peers.messages import PeerAnswer
    from tierdex.index_service.peers.peer_round import PeerRound
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.manifests.live_record import OwnerAddress
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

PATH: Final = "/v1/entries:unpublished"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
_AT_ONCE: Final = 32  # peers asked side by side
OUTCOMES: Final = ("answered", "failed")
_ANSWER_BYTES_MAX: Final = 64 << 20
_ROWS_MAX: Final = 10_000  # of one lookup in one file


@dataclass(slots=True)
class Questions:
    """Questions under way, until `deadline` (monotonic seconds); who was not asked, and why."""

    lookups: Lookups
    limit: int  # rows of one lookup in one file
    deadline: float
    under_way: dict[Future[PeerAnswer], OwnerAddress] = field(default_factory=dict)
    refused: list[tuple[OwnerAddress, str]] = field(default_factory=list)


class Peers:
    """Asks peers for one process. Safe to share between threads."""

    def __init__(self, settings: Settings, clock: Clock, read_view: ReadView) -> None:
        self._settings = settings
        self._clock = clock
        self._read_view = read_view
        self._timeout_s = settings.peer_timeout
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tierdex-peer")
        self._counting = threading.Lock()
        self._counts = dict.fromkeys(OUTCOMES, 0)
        headers = {"content-type": ARROW_STREAM, "accept-encoding": "identity"}  # of one network
        if settings.peer_key is not None:
            headers["authorization"] = f"Bearer {settings.peer_key}"
        self._http = httpx2.Client(
            headers=headers, timeout=self._timeout_s, follow_redirects=False, trust_env=False,
            verify=True if settings.peer_ca is None else trusting(settings.peer_ca, field="peer_ca"),
        )  # fmt: skip

    def close(self) -> None:
        """Do not wait: a request under way ends with its deadline."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def counts(self) -> dict[str, int]:
        """Return how many questions were sent, by what became of them: OUTCOMES."""
        with self._counting:
            return dict(self._counts)

    def begin(self, lookups: Lookups, ages: NodeAges, *, is_page: bool) -> Questions:
        """Send a question to every live owner that may be asked; do not wait.

        Take `ages` before the files that are searched meanwhile: what a peer does not answer since it is
        published is in these then.
        """
        peers = ages.live_peers(self._read_view.now_ms()) if lookups.count else []
        limit = _ROWS_MAX
        if not is_page and lookups.count:
            limit = int(min(_ROWS_MAX, 2 * lookups.max_count.max() + 16))
        return self._send_all(lookups, limit, peers)

    def finish(self, questions: Questions, round_: PeerRound) -> None:
        """Wait for the answers until their deadline; who did not answer, or wrongly, is in `missing`."""
        late = self._take(questions, round_)
        if late:
            self._read_view.refresh()
            round_.has_refreshed = True
            wanted = {peer.node for peer in late}
            peers = self._read_view.ages.live_peers(self._read_view.now_ms())
            again = [peer for peer in peers if peer.node in wanted]
            asked = self._send_all(questions.lookups, questions.limit, again)
            for peer in self._take(asked, round_):
                _miss(round_, peer, "its manifest changes faster than it can be read")

    def _send_all(self, lookups: Lookups, limit: int, peers: Iterable[OwnerAddress]) -> Questions:
        questions = Questions(lookups, limit, self._clock.monotonic() + self._timeout_s)
        for peer in peers:
            if (reason := self._why_not(peer.url)) is not None:
                questions.refused.append((peer, reason))
                continue
            question = Question(
                Owner(peer.node, peer.epoch, peer.owner, peer.number), limit, lookups
            )
            asked = self._pool.submit(self._send, peer.url, question, trace_headers())
            questions.under_way[asked] = peer
        return questions

    def _take(self, questions: Questions, round_: PeerRound) -> list[OwnerAddress]:
        """Note what came; return the peers that ask for a read of the manifest first."""
        for peer, reason in questions.refused:
            _miss(round_, peer, reason)
        left_s = max(0.0, questions.deadline - self._clock.monotonic())
        done, late = wait(questions.under_way, left_s)
        for future in late:
            future.cancel()
            reason = f"did not answer within {self._timeout_s:g} s"
            _miss(round_, questions.under_way[future], reason)
        refresh = []
        for future in done:
            peer = questions.under_way[future]
            try:
                answer = future.result()
                if answer.refresh_to is not None:
                    refresh.append(peer)
                    continue
                handles = [fetched_handle(peer.node, f, questions.lookups) for f in answer.files]
            except (TierdexError, httpx2.HTTPError, ValueError) as error:
                _miss(round_, peer, reason_of(error))
                continue
            round_.handles += handles
            round_.missing += [Missing(file, reason) for file, reason in answer.missing]
            round_.given_by.append(peer)
        return refresh

    def _send(self, url: str, question: Question, headers: dict[str, str]) -> PeerAnswer:
        """Ask, and count it. Raises what says that no sound answer came in time."""
        outcome = "failed"
        try:
            answer = self._answer_of(url, question, headers)
            outcome = "answered"
        finally:
            with self._counting:
                self._counts[outcome] += 1
        return answer

    def _answer_of(self, url: str, question: Question, headers: dict[str, str]) -> PeerAnswer:
        deadline = self._clock.monotonic() + self._timeout_s
        body, size = [], 0
        address = url.rstrip("/") + PATH
        with self._http.stream(
            "POST", address, content=encode_question(question), headers=headers
        ) as response:
            for chunk in response.iter_bytes():
                size += len(chunk)
                if size > _ANSWER_BYTES_MAX or self._clock.monotonic() > deadline:
                    raise UnavailableError("its answer is too long, or too slow")
                body.append(chunk)
        if response.status_code != 200:
            raise UnavailableError(f"it answered with {response.status_code}")
        return decode_answer(b"".join(body), question)

    def _why_not(self, url: str) -> str | None:
        """Return why an address of a live record is not asked; None: it is."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if host is None or parts.scheme not in ("http", "https") or parts.username is not None:
            return "its address is none"
        rule = self._settings.peers
        if isinstance(rule, list):
            return None if url.rstrip("/") in _plain(rule) else "its address is not in `peers`"
        names = (host, f"{host}:{port}")
        allowed = any(fnmatchcase(n, p.lower()) for n in names for p in self._settings.peer_allow)
        return None if allowed else "its host is not in `peer_allow`"


def _plain(urls: Sequence[str]) -> set[str]:
    return {url.rstrip("/") for url in urls}


def _miss(round_: PeerRound, peer: OwnerAddress, reason: str) -> None:
    logger.warning("peer not asked", extra={"node": peer.node, "error": reason})
    round_.missing.append(Missing(f"node:{peer.node}", f"holds what is not published: {reason}"))
