"""Delete files of Iceberg, written by hand: no library here writes them.

A snapshot is added to a table's metadata, with a manifest of delete files; the table is then read from that
metadata file.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record
from pyroaring import BitMap64


class DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files: pyiceberg has it for data alone."""

    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def with_deletes(table, delete_files, folder):
    """Return the path of the table's metadata with one snapshot more, of these delete files."""
    io = load_file_io({})
    metadata = json.loads(Path(plain(table.metadata_location)).read_text())
    sequence, number = metadata["last-sequence-number"] + 1, metadata["last-sequence-number"] + 1000
    path = f"{folder}/deletes-{number}.avro"
    writer = DeleteManifestWriter(table.spec(), table.schema(), io.new_output(path), number, "null")
    with writer:
        for each in delete_files:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=each
            )
            writer.add_entry(entry)
    manifest = writer.to_manifest_file()
    current = table.current_snapshot()
    listed = f"{folder}/list-{number}.avro"
    with write_manifest_list(
        2, io.new_output(listed), number, current.snapshot_id, sequence, "null"
    ) as lists:
        lists.add_manifests([*current.manifests(table.io), manifest])
    snapshot = {
        "snapshot-id": number, "parent-snapshot-id": current.snapshot_id, "sequence-number": sequence,
        "timestamp-ms": metadata["last-updated-ms"] + 1, "manifest-list": listed,
        "summary": {"operation": "delete"}, "schema-id": metadata["current-schema-id"],
    }  # fmt: skip
    metadata["snapshots"].append(snapshot)
    metadata["last-sequence-number"] = sequence
    metadata["last-updated-ms"] += 1
    metadata["current-snapshot-id"] = number
    metadata["refs"]["main"]["snapshot-id"] = number
    written = Path(folder, f"{number}.metadata.json")
    written.write_text(json.dumps(metadata))
    return str(written)


def plain(path):
    return path.removeprefix("file://")


def _delete_file(path, content, count, **more):
    given = {
        "content": content, "file_path": path, "file_format": FileFormat.PARQUET, "partition": Record(),
        "record_count": count, "file_size_in_bytes": Path(path).stat().st_size, **more,
    }  # fmt: skip
    made = DataFile.from_args(_table_format_version=2, **given)
    made.spec_id = 0
    return made


def position_deletes(folder, rows):
    """Write a position delete file; `rows` are (address of the data file, position)."""
    path = f"{folder}/positions-{len(rows)}.parquet"
    table = pa.table({"file_path": [file for file, _ in rows], "pos": [row for _, row in rows]})
    pq.write_table(table, path)
    return _delete_file(path, DataFileContent.POSITION_DELETES, len(rows))


def equality_deletes(folder, rows, ids):
    """Write an equality delete file: a table whose columns have the field IDs `ids`."""
    path = f"{folder}/equality-{'-'.join(map(str, ids))}-{rows.num_rows}.parquet"
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for field, number in zip(rows.schema, ids, strict=True)
    ]
    pq.write_table(rows.cast(pa.schema(fields)), path)
    return _delete_file(path, DataFileContent.EQUALITY_DELETES, rows.num_rows, equality_ids=ids)


def deletion_vector(folder, file, rows):
    """Write a deletion vector of a data file as a Puffin file."""
    bitmap = b"\xd1\xd3\x39\x64" + BitMap64(rows).serialize()
    blob = struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    footer = json.dumps({"blobs": [{
        "type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1,
        "offset": 4, "length": len(blob),
        "properties": {"referenced-data-file": file, "cardinality": str(len(rows))},
    }]}).encode()  # fmt: skip
    path = f"{folder}/vector-{len(rows)}.puffin"
    data = b"PFA1" + blob + b"PFA1" + footer + struct.pack("<I", len(footer)) + bytes(4) + b"PFA1"
    Path(path).write_bytes(data)
    return _delete_file(
        path, DataFileContent.POSITION_DELETES, len(rows), file_format=FileFormat.PUFFIN
    )
