"""Opens an index: checks what the caller gave, then opens it for reading or for writing.

Only open_view.py, open_reading.py and open_writing.py decide which component gets which.

Depends on lifecycle and the rest of index_service.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.errors import InvalidRequestError
from tierdex.index_service.opening.open_reading import open_reading
from tierdex.index_service.opening.open_view import Places
from tierdex.lifecycle.paths import DataPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.opening.components import Components
    from tierdex.index_service.opening.folder_owner import Claiming
    from tierdex.index_service.opening.log_owner import LogOwner
    from tierdex.index_service.opening.open_view import View
    from tierdex.index_service.view.published_view import PublishedView
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


def open_components(
    data: str | Path | None,
    store: str | Store | None,
    rocketmq: str | Path | None,
    *,
    settings: Settings,
    seams: Seams,
    claiming: Claiming,
    log_owner: LogOwner | None = None,
    shelf_of: Callable[[View], PublishedView] | None = None,
) -> Components:
    """Open a data folder, a store, or both. Without a data folder the index is read-only.

    With a `log_owner` it is the index beside that log; with `shelf_of` an index that is only read, beside a
    log whose published files are shown there.

    Raises FolderInUseError, InvalidRequestError, NotFoundError, OSError.
    """
    if data is None and store is None and rocketmq is None:
        raise InvalidRequestError("give a data folder, a store or both", field="data")
    places = Places(
        None if data is None else DataPaths(Path(data).absolute()),
        store,
        None if rocketmq is None else Path(rocketmq).absolute(),
    )
    if places.data is None:
        settings = settings.model_copy(update={"read_only": True})
    if settings.read_only:
        return open_reading(places, settings, seams, shelf_of)
    # Imported here, so that a reader does not load the writer and the compactor.
    from tierdex.index_service.opening.open_writing import open_writing

    return open_writing(places, settings, seams, claiming, log_owner)
