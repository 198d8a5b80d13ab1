"""How long answers may leave the manifests unread, and who ends that: components that miss files.

Depends on answer and lifecycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN, ForgottenEntries

if TYPE_CHECKING:
    from tierdex.index_service.answer import Unasked
    from tierdex.lifecycle.manifests.manifest import Retention


@dataclass(frozen=True, slots=True)
class Freshness:
    """Until `until` (ms) every manifest is fresh enough and no component reports a missing file.

    Manifests hide no entries but `forgotten`, and those that `rules` of nodes hide by their age. Everything
    acknowledged before `as_of` (ms) is in the files; `unasked` nodes hold newer entries. Read it before the
    files are searched, for its promise, and again after them: a file is named as missing before it leaves
    the table.
    """

    as_of: int
    until: int
    until_s: float
    unasked: tuple[Unasked, ...] = ()
    forgotten: ForgottenEntries = NOTHING_FORGOTTEN
    rules: tuple[tuple[str, Retention], ...] = ()


NOT_FRESH = Freshness(0, 0, 0.0)


class TellMissing(Protocol):
    """Called when the missing files of a component change; see `ManifestFollower.report_missing`."""

    def __call__(self, *, is_missing: bool) -> None: ...


def tell_nobody(*, is_missing: bool) -> None:
    """The initial callback of a component that is in no view yet."""
