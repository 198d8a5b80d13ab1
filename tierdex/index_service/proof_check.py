"""Checks a proof of absence against its store, for a second party that has only these two.

Depends on proof, clock, filesystem, ids, settings, errors and storage_layer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.index_service.proof import check_proof
from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping


class CheckedProof(NamedTuple):
    """What a second party knows of a proof: what differs, in words; and while nothing does, what it says.

    It says whether the key is absent from what the store listed at `time_ms`, and what no store shows.
    """

    problems: list[str]
    is_absent: bool | None = None
    time_ms: int | None = None
    unpublished: tuple[str, ...] = ()


def check_proof_in(store: str, proof: Any, settings: Mapping[str, Any]) -> CheckedProof:
    """Check a proof against the store at this address.

    `proof` is a proof, or an answer's JSON that has one. Raises InvalidRequestError for anything else,
    and what the store raises.
    """
    if isinstance(proof, dict) and isinstance(proof.get("explain"), dict):
        proof = proof["explain"].get("proof")
    if not isinstance(proof, dict):
        raise InvalidRequestError("holds no proof: query with --explain --proof", field="proof")
    if "://" not in store and not Path(store).is_dir():
        raise InvalidRequestError(f"there is no store {store}", field="PLACE")
    checked = load_settings(**settings)
    opened = open_store(
        store,
        settings=checked,
        clock=SystemClock(),
        ids=SystemIds(),
        filesystem=LocalFileSystem(),
    )
    try:
        problems = check_proof(opened, checked, proof)
    finally:
        opened.close()
    if problems:
        return CheckedProof(problems)
    return CheckedProof([], proof["absent"], proof["time_ms"], tuple(proof["unpublished"]))
