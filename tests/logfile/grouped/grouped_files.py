"""Small grouped files for tests, from journals that hold what a model says."""

from __future__ import annotations

import io

from tests.logfile.log_files import FILESYSTEM, Model, append, make_journal
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.grouped.merge import write_grouped
from tierdex.logfile.grouped.sources import JournalSource
from tierdex.logfile.grouped.writer import BesideMessages
from tierdex.logfile.journal.file import SealedJournal
from tierdex.logfile.layout import Codec


def sealed_of(folder, calls, model, *, uuid=bytes(range(16)), **other) -> SealedJournal:
    """Append calls (lists of rows) to a journal, seal it, open it."""
    path = folder / f"journal-{uuid.hex()}"
    journal = make_journal(path, uuid=uuid, **other)
    for rows in calls:
        append(journal, rows, model)
    journal.seal()
    journal.close()
    return SealedJournal.open(FILESYSTEM, path)


def grouped_bytes(
    sources, header, *, page_bytes=1024, codec=Codec.LZ4, shared_by=(), on_progress=None, **beside
) -> bytes:
    out = io.BytesIO()
    header = header.grouped(page_bytes=page_bytes, codec=codec)
    summary = write_grouped(
        sources, out.write, header=header, beside=BesideMessages(**beside), shared_by=shared_by,
        on_progress=on_progress,
    )  # fmt: skip
    data = out.getvalue()
    assert summary.bytes == len(data)
    return data


def open_bytes(data: bytes, sidecar_position: int = 0) -> GroupedFile:
    """Open a file by its tail and ranges of `data`."""
    return GroupedFile.from_sidecar(data[sidecar_position:], lambda p, n: data[p : p + n])


def make_grouped(folder, calls, model: Model, **other) -> bytes:
    sealed = sealed_of(folder, calls, model)
    data = grouped_bytes([JournalSource(sealed)], sealed.header, **other)
    sealed.close()
    return data
