"""The age of an answer: the nodes that were not asked, and whether it is as fresh as requested.

::

    before   `prepare`   the manifests were read longer ago than requested: read them again
    after    `tell`      nodes that hold entries which are not published    -> unasked
                         nodes that make the answer older than requested    -> missing, not complete

The runners set `as_of`, since they know when they took the files that they searched.

Depends on answer, view and errors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import IncompleteAnswerError, InvalidRequestError
from tierdex.index_service.view.manifest_follower import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierdex.clock import Clock
    from tierdex.index_service.answer import Answer, Missing
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.settings import Settings

UNASKED: Final = b"unasked"
MISSING: Final = b"missing"


class AnswerAge:
    """Tells how old answers are. Safe to share between threads."""

    def __init__(self, settings: Settings, clock: Clock, read_view: ReadView) -> None:
        self._default_s = settings.fresh_within
        self._refresh_s = settings.refresh_interval
        self._clock = clock
        self._read_view = read_view

    def limit(self, fresh_within: object) -> float | None:
        """Return the permitted age (seconds) of an answer; None: any. Raises InvalidRequestError."""
        if fresh_within is None:
            return self._default_s
        if isinstance(fresh_within, bool) or not isinstance(fresh_within, int | float):
            raise InvalidRequestError("must be a number of seconds", field="fresh_within")
        if not 0 < fresh_within < float("inf"):
            raise InvalidRequestError("must be above 0", field="fresh_within")
        return float(fresh_within)

    def is_within(self, limit: float | None) -> bool:
        """Return whether an answer from the files at hand would be young enough."""
        return limit is None or not self._read_view.older_than(limit)

    def prepare(self, limit: float | None) -> None:
        """Read the manifests again if they were read too long ago for the requested age."""
        if limit is not None:
            age_s = (self._clock.now_ms() - self._read_view.read_ms()) / 1000
            if age_s > min(limit, self._refresh_s):
                self._read_view.refresh()

    def tell(
        self,
        answers: Iterable[Answer],
        limit: float | None,
        *,
        fail: bool,
        answered: Mapping[str, int] = NOBODY,
    ) -> None:
        """Complete the answers. Raises IncompleteAnswerError when `fail` and they are too old.

        Nodes that `answered` themselves were asked.
        """
        unasked = self._read_view.unasked(answered)
        older = self._older(limit, answered, fail=fail)
        if not unasked and not older:
            return
        for answer in answers:
            answer.unasked = unasked
            if older:
                answer.complete = False
                answer.missing = [*answer.missing, *older]

    def tell_table(
        self,
        table: Any,
        limit: float | None,
        *,
        fail: bool,
        answered: Mapping[str, int] = NOBODY,
    ) -> Any:
        """Do as `tell` for an Arrow table of answers, in the metadata of its schema; return it."""
        unasked = self._read_view.unasked(answered)
        older = self._older(limit, answered, fail=fail)
        if not unasked and not older:
            return table
        metadata = dict(table.schema.metadata or {})
        if unasked:
            metadata[UNASKED] = _to_json([each._asdict() for each in unasked])
        if older:
            told = json.loads(metadata.get(MISSING, b"[]"))
            told += [{**each._asdict(), "lookups": None} for each in older]
            metadata[MISSING] = _to_json(told)
        return table.replace_schema_metadata(metadata)

    def _older(
        self, limit: float | None, answered: Mapping[str, int], *, fail: bool
    ) -> list[Missing]:
        older = [] if limit is None else self._read_view.older_than(limit, answered)
        if older and fail:
            names = ", ".join(f"{name} ({reason})" for name, reason in older[:3])
            raise IncompleteAnswerError(f"older than {limit:g} s: {names}", missing=older)
        return older


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
