"""Files that Spark reads, as locations name them; the begins of their row groups and lines.

A *source* is a path as a user writes it: an absolute local path, or a URL such as
``s3a://bucket/key``; Spark's `_metadata.file_path` is its percent-encoded form.

Row groups come from the footers, read through Spark's own Hadoop file system, so any path works.
Lines come from the text source: a file split into blocks gives each line to exactly one block, in
order, so a line's offset is the size of the blocks before it plus that of the lines before it in
its block. The sum is compared with the file's size, which detects a compressed file or one without
lines.

Depends on pyspark.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE: Final = "__file"
BLOCK: Final = "__block"
LENGTH: Final = "__length"
BOM_BYTES: Final = 3
_FOOTERS_AT_ONCE: Final = 8
_GLOB: Final = re.compile(r"([\\*?\[\]{}])")


def source_of(file_path: str) -> str:
    """Return the source that `_metadata.file_path` stands for."""
    path = unquote(file_path)
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def path_of(source: str) -> str:
    """Return a source as a path for Spark's readers: literally, not as a pattern."""
    return _GLOB.sub(r"\\\1", source)


def row_group_starts(spark: Any, file_paths: Sequence[str]) -> dict[str, list[int]]:
    """Return the first row of every row group of Parquet files, by `_metadata.file_path`."""
    jvm = spark._jvm
    conf = spark._jsc.hadoopConfiguration()

    def starts(file_path: str) -> list[int]:
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file_path))
        file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, conf)
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file)
        try:
            counts = [block.getRowCount() for block in reader.getFooter().getBlocks()]
        finally:
            reader.close()
        return [0, *np.cumsum(counts).tolist()][:-1]

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return dict(zip(file_paths, pool.map(starts, file_paths), strict=True))


def lines_of(spark: Any, paths: Sequence[str]) -> Any:
    """Return the lines of text files with their places; a line may end in a carriage return."""
    lines = spark.read.option("lineSep", "\n").text(list(paths))
    return lines.select(
        "value",
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        F.octet_length("value").alias(LENGTH),
        F.col("_metadata.file_size").alias("__size"),
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the first line of each (file, block) begins; each file's first line; the line count."""

    offsets: dict[tuple[str, int], int]
    first_lines: dict[str, str]
    line_count: int


def measure_blocks(lines: Any) -> Blocks:
    """Read the files once; return where the lines of their blocks begin.

    Raises InvalidRequestError for a file whose lines do not add up to its size.
    """
    blocks = (
        lines.withColumn("__id", F.monotonically_increasing_id())
        .groupBy(FILE, BLOCK)
        .agg(
            F.sum(F.col(LENGTH) + 1).alias("bytes"),
            F.max("__size").alias("size"),
            F.count(F.lit(1)).alias("lines"),
            F.min_by("value", "__id").alias("first"),
        )
        .orderBy(FILE, BLOCK)
        .collect()
    )
    by_file: dict[str, list[Any]] = {}
    for block in blocks:
        by_file.setdefault(block[FILE], []).append(block)
    offsets = {}
    for file_path, found in by_file.items():
        total = sum(block["bytes"] for block in found)
        excess = found[0]["size"] - total
        # The last newline may be missing; a byte order mark is no part of the first line.
        if excess not in {0, -1, BOM_BYTES, BOM_BYTES - 1}:
            raise InvalidRequestError(
                f"{source_of(file_path)} has {found[0]['size']} bytes and {total} of lines: it is "
                "compressed, or no text",
                field="source",
            )
        offset = BOM_BYTES if excess >= BOM_BYTES - 1 else 0
        for block in found:
            offsets[file_path, block[BLOCK]] = offset
            offset += block["bytes"]
    first = {file_path: found[0]["first"].rstrip("\r") for file_path, found in by_file.items()}
    return Blocks(offsets, first, sum(block["lines"] for block in blocks))


def with_offsets(frame: Any, offsets: dict[tuple[str, int], int]) -> Any:
    """Replace FILE and BLOCK by `source`, and add `offset`: where each line begins.

    `frame` has FILE, BLOCK and LENGTH, its rows in the order of the text source.
    """
    kept = [field for field in frame.schema.fields if field.name not in {FILE, BLOCK, LENGTH}]

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        running = _Running(offsets)
        for batch in batches:
            sources, found = running.place(batch)
            columns = [batch.column(field.name) for field in kept]
            names = [*(field.name for field in kept), "source", "offset"]
            yield pa.RecordBatch.from_arrays([*columns, sources, found], names=names)

    added = [T.StructField("source", T.StringType()), T.StructField("offset", T.LongType())]
    return frame.mapInArrow(add, T.StructType([*kept, *added]))


class _Running:
    """The position of the next line of the current block. For one thread."""

    def __init__(self, offsets: dict[tuple[str, int], int]) -> None:
        self._offsets = offsets
        self._block: tuple[str, int] | None = None
        self._next = 0

    def place(self, batch: pa.RecordBatch) -> tuple[Any, Any]:
        """Return (source, offset) of each row."""
        files = batch.column(FILE).dictionary_encode()
        blocks = np.asarray(batch.column(BLOCK))
        lengths = np.asarray(batch.column(LENGTH)).astype(np.int64) + 1
        numbers = np.asarray(files.indices)
        names = files.dictionary.to_pylist()
        offsets = np.zeros(len(blocks), np.int64)
        changes = (numbers[1:] != numbers[:-1]) | (blocks[1:] != blocks[:-1])
        cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(blocks)] if len(blocks) else []
        for low, high in pairwise(cuts):
            block = (names[numbers[low]], int(blocks[low]))
            if block != self._block:
                self._block, self._next = block, self._offsets[block]
            ends = self._next + np.cumsum(lengths[low:high])
            offsets[low:high] = ends - lengths[low:high]
            self._next = int(ends[-1])
        sources = pa.array([source_of(name) for name in names], pa.string())
        return sources.take(files.indices), pa.array(offsets)
