"""Shows others that the node's owner lives, and the owner that it no longer is one.

An idle owner commits nothing for days. It writes the hint anew, often enough that a sign is never older
than a quarter of `takeover_after`: three may fail before somebody takes the node for abandoned. It has a
thread of its own, since one merge may take the publisher's for longer than that.

A takeover is seen in the manifest, which the index reads every few seconds anyway: an owner that has
nothing to publish learns of it here, without a request, and puts are refused from then on.

Depends on errors only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierdex.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.compactor.components import CompactorComponents

_SIGNS: Final = 4  # in `takeover_after`
_LOOK_EVERY_S: Final = 1.0


class OwnerSign:
    """Looks whether we are still the owner; says so in the store when that is due. One thread."""

    name = "sign"

    def __init__(
        self, components: CompactorComponents, *, on_fenced: Callable[[FencedError], None]
    ) -> None:
        self._components = components
        self._on_fenced = on_fenced
        self._signed_at = (
            components.clock.monotonic()
        )  # the claim's commit was a sign, or is yet to come

    def step(self) -> float:
        """Look, and sign if that is due; return the seconds until the next look."""
        claim, clock = self._components.claim, self._components.clock
        if not claim.is_claimed:
            return _LOOK_EVERY_S
        node = claim.get()
        try:
            node.check()
            interval = self._components.settings.takeover_after / _SIGNS
            if interval and clock.monotonic() - self._signed_at >= interval:
                node.sign()
                self._signed_at = clock.monotonic()
        except FencedError as error:
            self._on_fenced(error)
        return _LOOK_EVERY_S
