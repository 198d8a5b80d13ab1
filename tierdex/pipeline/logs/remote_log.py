"""A published log file in a task: its sidecar, kept open in the worker process for later tasks.

Depends on log_service, logfile, worker_process and the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.log_service.files.whole_object import open_grouped_tail
from tierdex.pipeline.jobs.worker_process import OpenFiles

if TYPE_CHECKING:
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.pipeline.jobs.job_store import StoreLink
    from tierdex.storage_layer.base import Store

_open_files: OpenFiles[GroupedFile] = OpenFiles(lambda file: file.bytes - file.sidecar_position)


def open_log_file(link: StoreLink, store: Store, row: FileRow) -> GroupedFile:
    """Return the file by its tail, which is fetched when no earlier task of this process did.

    Its pages are the caller's to fetch. Raises what the store raises, CorruptFileError.
    """
    return _open_files.get((link, row.object_key), lambda: open_grouped_tail(store, row))
