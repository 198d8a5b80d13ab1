"""Describes one log file as plain values, in the words of docs/log_format.md: `tierdex inspect`.

Depends on check, grouped, journal, layout and fileparts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.fileparts.layout import FORMAT_VERSION
from tierdex.logfile.check import open_log_file
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.journal.file import Journal, SealedJournal

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.fileparts.footer import Footer
    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.filesystem import FileSystem
    from tierdex.logfile.header import LogHeader
    from tierdex.logfile.topics import Topics

_TOPICS_SHOWN = 100


def describe_log_file(filesystem: FileSystem, path: Path) -> dict[str, Any]:
    """Return header, batches or pages, queues, topics and parts of a file of either form.

    Values are JSON's. An unsealed journal is read whole. Raises OSError, CorruptFileError.
    """
    opened = open_log_file(filesystem, path)
    try:
        if isinstance(opened, GroupedFile):
            return _describe_grouped(opened)
        if isinstance(opened, SealedJournal):
            return _describe_sealed(opened)
        return _describe_unsealed(opened)
    finally:
        opened.close()


def _describe_header(header: LogHeader) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "form": header.form.name.lower(),
        "uuid": header.uuid.hex(),
        "created_ms": header.created_ms,
        "generation": header.generation,
    }


def _describe_unsealed(journal: Journal) -> dict[str, Any]:
    end = journal.end
    return {
        **_describe_header(journal.header),
        "state": "unsealed",
        "capacity": journal.header.capacity,
        "fill": round(end.position / journal.header.capacity, 4),
        "message_count": journal.message_count,
        "queue_count": journal.queue_count,
        "topic_count": journal.tables.topic_count,
        "batches": {"count": end.number, "end": end.position, "crc": end.crc},
        "predecessor": _describe_predecessor(journal.predecessor),
    }


def _describe_predecessor(predecessor: Predecessor | None) -> dict[str, Any] | None:
    if predecessor is None:
        return None
    return {
        "uuid": predecessor.uuid.hex(),
        "batch_count": predecessor.batch_count,
        "batch_crc": predecessor.batch_crc,
    }


def _describe_sealed(journal: SealedJournal) -> dict[str, Any]:
    counts = journal.queues()["count"].astype(np.int64)
    return {
        **_describe_header(journal.header),
        "state": "sealed",
        "bytes": journal.bytes,
        **_describe_messages(journal, counts),
        "batches": {
            "count": journal.end.number,
            "end": journal.end.position,
            "crc": journal.end.crc,
        },
        "topics": _describe_topics(journal.topics),
        "parts": _describe_parts(journal.footer),
        "extra": journal.extra,
    }


def _describe_grouped(file: GroupedFile) -> dict[str, Any]:
    lengths = np.diff(file.directory()["position"].astype(np.int64))
    return {
        **_describe_header(file.header),
        "bytes": file.bytes,
        **_describe_messages(file, file.queues().counts),
        "sidecar": {
            "position": file.sidecar_position,
            "bytes": file.bytes - file.sidecar_position,
        },
        "pages": {
            "count": file.page_count,
            "codec": file.header.codec.name.lower(),
            "page_bytes": file.header.page_bytes,
            "payload_bytes": file.payload_bytes,
            "bytes_least": int(lengths.min()) if len(lengths) else 0,
            "bytes_greatest": int(lengths.max()) if len(lengths) else 0,
        },
        "filter": {
            "bits": file.filter.bits,
            "partitions": len(file.filter.partitions),
            "keys": file.filter.key_count,
        },
        "topics": _describe_topics(file.topics),
        "parts": _describe_parts(file.footer),
        "extra": file.extra,
    }


def _describe_messages(file: SealedJournal | GroupedFile, counts: np.ndarray) -> dict[str, Any]:
    has_any = bool(file.message_count)
    return {
        "message_count": file.message_count,
        "body_bytes": file.body_bytes,
        "min_time": file.min_time if has_any else None,
        "max_time": file.max_time if has_any else None,
        "queue_count": file.queue_count,
        "messages_a_queue": {
            "least": int(counts.min()) if has_any else 0,
            "mean": round(file.message_count / max(1, file.queue_count), 2),
            "greatest": int(counts.max()) if has_any else 0,
        },
    }


def _describe_topics(topics: Topics) -> dict[str, Any]:
    shown = {
        topics.name(index).decode(errors="backslashreplace"): {
            name: int(topics.rows[name][index])
            for name in ("queue_count", "message_count", "body_bytes", "min_time", "max_time")
        }
        for index in range(min(len(topics), _TOPICS_SHOWN))
    }
    return {"count": len(topics), "first": shown}


def _describe_parts(footer: Footer) -> dict[str, dict[str, int]]:
    return {
        entry.kind.name.lower(): {"position": entry.position, "bytes": entry.length}
        for entry in sorted(footer.parts.values(), key=lambda entry: entry.position)
    }
