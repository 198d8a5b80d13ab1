"""The places of a log's messages that were forgotten, as its store carries them: for plans of jobs.

A plan needs nothing else of the notes, and this part of them needs no kernels: they would take longer to
load than the plan takes. Depends on filesystem, carried_notes, forgotten_messages and logfile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.filesystem import LocalFileSystem
from tierdex.log_service.carried_notes import FORGOTTEN, fetch_notes, row_of_notes
from tierdex.log_service.forgotten_messages import ForgottenRecord
from tierdex.logfile.forgotten import NOWHERE

if TYPE_CHECKING:
    from tierdex.lifecycle.manifest import ManifestState
    from tierdex.logfile.forgotten import ForgottenPlaces
    from tierdex.storage_layer.base import Store


def read_places(store: Store, state: ManifestState) -> ForgottenPlaces:
    """Return the places of a node's messages that were forgotten, as its owner noted them in the store.

    Raises what the store raises, CorruptFileError.
    """
    row = row_of_notes(state)
    if row is None:
        return NOWHERE
    record = ForgottenRecord(LocalFileSystem(), Path())
    record.take(fetch_notes(store, row).get(FORGOTTEN))
    return record.places
