"""The age of an answer: the nodes that were not asked, and whether it is as fresh as requested.

::

    before   `prepare`   the manifests were read longer ago than requested: read them again
    after    `tell`      nodes that hold entries which are not published    -> unasked
                         nodes that make the answer older than requested    -> missing, not complete

The runners set `as_of`, since they know when they took the files that they searched.

Depends on answer, peers, view and errors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import IncompleteAnswerError, InvalidRequestError
from tierdex.index_service.view.node_ages import NO_NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from tierdex.index_service.answer import Answer, Histogram, Missing
    from tierdex.index_service.peers.peer_round import PeerRound
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.settings import Settings

UNASKED: Final = b"unasked"
MISSING: Final = b"missing"


def check_age_limit(fresh_within: object) -> float:
    """Return `fresh_within` (seconds) as a number. Raises InvalidRequestError."""
    if isinstance(fresh_within, bool) or not isinstance(fresh_within, int | float):
        raise InvalidRequestError("must be a number of seconds", field="fresh_within")
    if not 0 < fresh_within < float("inf"):
        raise InvalidRequestError("must be above 0", field="fresh_within")
    return float(fresh_within)


def oldest_ms(now_ms: int, limit_s: float) -> int:
    """Return the time (ms) that was so many seconds ago, at the earliest the epoch."""
    return now_ms - round(min(limit_s * 1000, now_ms))


class AnswerAge:
    """Tells how old answers are. Safe to share between threads."""

    def __init__(self, settings: Settings, read_view: ReadView) -> None:
        self._default_s = settings.fresh_within
        self._refresh_s = settings.refresh_interval
        self._read_view = read_view

    def limit(self, fresh_within: object) -> float | None:
        """Return the permitted age (seconds) of an answer; None: any. Raises InvalidRequestError."""
        return self._default_s if fresh_within is None else check_age_limit(fresh_within)

    def is_within(self, limit: float | None) -> bool:
        """Return whether an answer from the files at hand would be young enough."""
        return limit is None or not self._read_view.ages.older_than(self._oldest(limit))

    def prepare(self, limit: float | None) -> None:
        """Read the manifests again if they were read too long ago for the requested age."""
        if limit is None:
            return
        if self._read_view.ages.read_ms() < self._oldest(min(limit, self._refresh_s)):
            self._read_view.refresh()

    def tell(
        self,
        answers: Iterable[Answer | Histogram],
        limit: float | None,
        round_: PeerRound,
        *,
        fail: bool,
    ) -> None:
        """Complete the answers. Raises IncompleteAnswerError when `fail` and they are too old.

        `round_` has the ages of the files that were searched, and the nodes that were asked themselves.
        """
        ages = round_.ages or self._read_view.ages
        unasked = ages.unasked(round_.answered)
        older = self._older_or_fail(limit, ages, round_.answered, fail=fail)
        if not unasked and not older:
            return
        for answer in answers:
            answer.unasked = unasked
            if older:
                answer.complete = False
                answer.missing = [*answer.missing, *older]

    def tell_table(self, table: Any, limit: float | None, round_: PeerRound, *, fail: bool) -> Any:
        """Do as `tell` for an Arrow table of answers, in the metadata of its schema; return it."""
        ages = round_.ages or self._read_view.ages
        unasked = ages.unasked(round_.answered)
        older = self._older_or_fail(limit, ages, round_.answered, fail=fail)
        if not unasked and not older:
            return table
        metadata = dict(table.schema.metadata or {})
        if unasked:
            metadata[UNASKED] = _to_json([each._asdict() for each in unasked])
        if older:
            told = json.loads(metadata.get(MISSING, b"[]"))
            told += [{**each.to_dict(), "lookups": None} for each in older]
            metadata[MISSING] = _to_json(told)
        return table.replace_schema_metadata(metadata)

    def older(
        self, limit: float | None, ages: NodeAges, answered: Set[str] = NO_NODES
    ) -> tuple[Missing, ...]:
        """Return the nodes that make what is as of `ages` older than permitted."""
        return () if limit is None else tuple(ages.older_than(self._oldest(limit), answered))

    def _oldest(self, limit_s: float) -> int:
        return oldest_ms(self._read_view.now_ms(), limit_s)

    def _older_or_fail(
        self, limit: float | None, ages: NodeAges, answered: Set[str], *, fail: bool
    ) -> tuple[Missing, ...]:
        older = self.older(limit, ages, answered)
        if older and fail:
            raise IncompleteAnswerError.too_old(older)
        return older


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
