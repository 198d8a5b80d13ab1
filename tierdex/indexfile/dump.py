"""Describes one index file as plain values, in the words of docs/format.md: `tierdex inspect`.

Depends on chained, compacted, check and layout.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.check import open_for_check
from tierdex.indexfile.compacted.file import CompactedFile

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.indexfile.chained.file import ChainedFile

_STRINGS_SHOWN = 100
_FRAMES = {
    layout.CONSTANT_FRAME: "constant",
    layout.FILE_FRAME: "file",
    layout.PAGE_FRAME: "page",
}
_CHUNK_ITEMS = 65_536


def describe_file(filesystem: FileSystem, path: Path) -> dict[str, Any]:
    """Return header, parts, fill, histogram, dictionaries and pages of a file of either form.

    Values are JSON's. Reads the whole file. Raises OSError, CorruptFileError.
    """
    opened = open_for_check(filesystem, path)
    try:
        if isinstance(opened, CompactedFile):
            return _describe_compacted(opened)
        return _describe_chained(opened)
    finally:
        opened.close()


def _describe_common(file: ChainedFile | CompactedFile) -> dict[str, Any]:
    dictionaries = file.dictionaries
    return {
        "format_version": file.schema.format_version,
        "uuid": file.uuid.hex(),
        "created_ms": file.created_ms,
        "slot_count": file.slot_count,
        "item_count": file.item_count,
        "item_bytes": file.schema.item_bytes,
        "schema": [[field.name, field.code] for field in file.schema.fields],
        "offsets": "sequence" if file.schema.is_sequence else "bytes",
        "min_time": file.min_time if file.item_count else None,
        "max_time": file.max_time if file.item_count else None,
        "bytes": file.bytes_used,
        "dictionaries": {
            name: {
                "count": len(dictionaries.strings(name)),
                "strings": dictionaries.strings(name)[:_STRINGS_SHOWN],
            }
            for name in dictionaries.names
        },
    }


def _describe_chained(file: ChainedFile) -> dict[str, Any]:
    histogram = _slot_histogram(file)
    filled = sum(count for length, count in histogram.items() if length)
    return {
        "form": "chained",
        **_describe_common(file),
        "item_capacity": file.item_capacity,
        "fill": round(file.item_count / file.item_capacity, 4),
        "slots_filled": filled,
        "slots_fill": round(filled / file.slot_count, 4),
        "chain_histogram": _grouped(histogram),
    }


def _slot_histogram(file: ChainedFile) -> Counter[int]:
    """Return how many slots have how many items, from the rows in the order of slots."""
    histogram: Counter[int] = Counter()
    slot, length, filled = -1, 0, 0
    for rows in file.rows_in_hash_order(_CHUNK_ITEMS):
        slots = _slots(rows["key_hash"], file.slot_count)
        numbers, counts = np.unique(slots, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number == slot:
                length += count
                continue
            if length:
                histogram[length] += 1
                filled += 1
            slot, length = number, count
    if length:
        histogram[length] += 1
        filled += 1
    histogram[0] = file.slot_count - filled
    return histogram


def _slots(hashes: np.ndarray, slot_count: int) -> np.ndarray:
    """Return the slot (u8) of each hash: the upper half of hash * slot_count, which is below 2**31."""
    count, half = np.uint64(slot_count), np.uint64(32)
    low = (hashes & np.uint64(0xFFFFFFFF)) * count
    high = (hashes >> half) * count
    return (high + (low >> half)) >> half


def _describe_compacted(file: CompactedFile) -> dict[str, Any]:
    statistics = file.statistics
    lengths = np.diff(file.directory.entries["position"].astype(np.int64))
    items = max(1, statistics.item_count)
    return {
        "form": "compacted",
        **_describe_common(file),
        "bytes_per_item": round(file.bytes / items, 2),
        "distinct_hashes": statistics.distinct_count,
        "longest_run": statistics.longest_run,
        "run_histogram": _grouped(_run_histogram(file)),
        "sidecar": {
            "position": file.sidecar_position,
            "bytes": file.bytes - file.sidecar_position,
        },
        "parts": {
            entry.kind.name.lower(): {"position": entry.position, "bytes": entry.length}
            for entry in sorted(file.footer.parts.values(), key=lambda entry: entry.position)
        },
        "hash_groups": _describe_groups(file),
        "pages": {
            "count": statistics.page_count,
            "items_per_page": statistics.items_per_page,
            "bytes_least": int(lengths.min()) if len(lengths) else 0,
            "bytes_greatest": int(lengths.max()) if len(lengths) else 0,
        },
        "columns": _describe_columns(file),
        "filter": {
            "bits": statistics.filter_bits,
            "partitions": len(file.filter.partitions),
            "keys": file.filter.key_count,
            "bits_per_key": round(
                8 * len(file.filter.fingerprints) / max(1, statistics.distinct_count), 2
            ),
        },
        "topics": _describe_topics(file),
        "extra": file.extra,
    }


def _describe_groups(file: CompactedFile) -> dict[str, int] | None:
    """Return the parts that a reader fetches apart: None when it reads the sidecar whole."""
    groups = file.groups
    if groups is None:
        return None
    return {
        "count": groups.group_count,
        "position": groups.position,
        "stride": groups.stride,
        "head_bytes": groups.head_end - file.sidecar_position,
    }


def _describe_columns(file: CompactedFile) -> dict[str, dict[str, Any]]:
    names = ("tag", "timestamp", *file.schema.field_names)
    return {
        name: {"frame": _FRAMES[int(column["frame"])], "width": int(column["width"])}
        for name, column in zip(names, file.plan.columns, strict=True)
    }


def _describe_topics(file: CompactedFile) -> dict[str, dict[str, int]]:
    names = file.dictionaries.strings("topic")[:_STRINGS_SHOWN]
    return {
        name: {key: int(row[key]) for key in ("item_count", "min_time", "max_time")}
        for name, row in zip(names, file.topic_rows, strict=False)
    }


def _run_histogram(file: CompactedFile) -> Counter[int]:
    """Return how many hashes have how many items."""
    histogram: Counter[int] = Counter()
    last_hash, run = -1, 0
    for rows in file.rows_in_hash_order(_CHUNK_ITEMS):
        hashes = rows["key_hash"]
        edges = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1], True])
        lengths = np.diff(edges).tolist()
        if int(hashes[0]) == last_hash:
            lengths[0] += run
        elif run:
            histogram[run] += 1
        last_hash, run = int(hashes[-1]), lengths.pop()
        histogram.update(lengths)
    if run:
        histogram[run] += 1
    return histogram


def _grouped(histogram: Counter[int]) -> dict[str, int]:
    """Return a histogram by powers of two: "0", "1", "2", "3-4", "5-8" ... -> how many."""
    groups: dict[str, int] = {}
    for length in sorted(histogram):
        label = _group(length)
        groups[label] = groups.get(label, 0) + histogram[length]
    return groups


def _group(length: int) -> str:
    if length <= 2:
        return str(length)
    top = 1 << (length - 1).bit_length()
    return f"{top // 2 + 1}-{top}"
