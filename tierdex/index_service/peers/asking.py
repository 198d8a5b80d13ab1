"""Asks live owners for what they have not published, side by side and within a deadline.

::

    live records -> who may be asked (`peers`, `peer_allow`) -> one question each -> handles for one query

Addresses come from live records in the store or from the settings, never from a caller, and our key is sent
to hosts only that the settings name: with `auto` those that `peer_allow` matches, with a list those in it. A
redirect is not followed. A peer asks nobody in turn. Whoever does not answer, or answers wrongly, is named as
missing; who says that files were listed meanwhile is asked once more after a refresh.

Depends on messages, fetched_file, answer, httpx2 and errors.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor, wait
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx2

from tierdex.errors import TierdexError, UnavailableError
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

    from tierdex.clock import Clock
    from tierdex.index_service.peers.messages import PeerAnswer
    from tierdex.index_service.peers.peer_round import PeerRound
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.live_record import OwnerAddress
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

PATH: Final = "/v1/entries:unpublished"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
_AT_ONCE: Final = 32  # peers asked side by side
_ANSWER_BYTES_MAX: Final = 64 << 20
_ROWS_MAX: Final = 10_000  # of one lookup in one file


class Peers:
    """Asks peers for one process. Safe to share between threads."""

    def __init__(self, settings: Settings, clock: Clock, read_view: ReadView) -> None:
        self._settings = settings
        self._clock = clock
        self._read_view = read_view
        self._timeout_s = settings.peer_timeout
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tierdex-peer")
        headers = {"content-type": ARROW_STREAM}
        if settings.peer_key is not None:
            headers["authorization"] = f"Bearer {settings.peer_key}"
        self._http = httpx2.Client(
            headers=headers, timeout=self._timeout_s, follow_redirects=False, trust_env=False
        )

    def close(self) -> None:
        """Wait for nobody: what is under way ends with its deadline."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def ask(self, lookups: Lookups, round_: PeerRound, *, is_page: bool) -> None:
        """Ask every live owner; who cannot be asked is in `missing`.

        Raises UnavailableError for a page of a cursor then: its file may be there, and to begin elsewhere
        would skip or repeat.
        """
        if not lookups.count:
            return
        late = self._ask_once(lookups, self._read_view.live_peers(), round_, is_page=is_page)
        if late:
            self._read_view.refresh()
            wanted = {peer.node for peer in late}
            peers = [peer for peer in self._read_view.live_peers() if peer.node in wanted]
            for peer in self._ask_once(lookups, peers, round_, is_page=is_page):
                _miss(round_, peer, "its manifest changes faster than it can be read")
        if is_page and round_.missing:
            name, reason = round_.missing[0]
            raise UnavailableError(f"{name} {reason}: try again, or without the cursor")

    def _ask_once(
        self, lookups: Lookups, peers: Iterable[OwnerAddress], round_: PeerRound, *, is_page: bool
    ) -> list[OwnerAddress]:
        """Ask; note what came; return those who say that the manifest is to be read first."""
        limit = _ROWS_MAX if is_page else int(min(_ROWS_MAX, 2 * lookups.max_count.max() + 16))
        asked_ms = self._clock.now_ms()
        futures = {}
        for peer in peers:
            if (reason := self._why_not(peer.url)) is not None:
                _miss(round_, peer, reason)
                continue
            owner = Owner(peer.node, peer.epoch, peer.owner, peer.number)
            question = Question(owner, limit, lookups)
            futures[self._pool.submit(self._send, peer.url, question)] = peer
        done, late = wait(futures, self._timeout_s)
        for future in late:
            future.cancel()
            _miss(round_, futures[future], f"did not answer within {self._timeout_s:g} s")
        refresh = []
        for future in done:
            peer = futures[future]
            try:
                answer = future.result()
                if answer.refresh_to is not None:
                    refresh.append(peer)
                    continue
                handles = [fetched_handle(peer.node, f, lookups) for f in answer.files]
            except (TierdexError, httpx2.HTTPError, ValueError) as error:
                _miss(round_, peer, str(error) or type(error).__name__)
                continue
            round_.handles += handles
            round_.missing += [Missing(file, reason) for file, reason in answer.missing]
            round_.answered[peer.node] = asked_ms
        return refresh

    def _send(self, url: str, question: Question) -> PeerAnswer:
        deadline = self._clock.monotonic() + self._timeout_s
        body, size = [], 0
        with self._http.stream(
            "POST", url.rstrip("/") + PATH, content=encode_question(question)
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
