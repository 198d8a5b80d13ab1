"""`tierdex spark build | lookup | merge | verify | index`: the pipeline's jobs.

Each job runs in a session at `--master` (this machine by default) and reports its result.
Credentials come from the environment.

Depends on pipeline and the rest of app.cli.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tierdex.app.cli.inputs.spark_session import Session
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, reporting, say
from tierdex.app.cli.terminal.options import Form, Output, spread
from tierdex.app.cli.terminal.output import write_fields, write_rows
from tierdex.app.cli.terminal.telling import tell_age

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc"}

Store = Annotated[
    str, typer.Argument(help="s3://BUCKET/PREFIX, or a folder that all machines share.")
]
Node = Annotated[str, typer.Option(help="The shared node that publishes the files.")]
Target = Annotated[int, typer.Option(min=1, help="Maximum number of entries of one file.")]
Nodes = Annotated[
    list[str] | None, typer.Option("--from", help="Merge only these nodes; repeatable.")
]


def make_cli() -> typer.Typer:
    """Return the command group."""
    cli = typer.Typer(
        help="Build, look up, merge, verify and index with Spark.", no_args_is_help=True
    )
    commands: dict[str, Callable[..., None]] = {
        "build": build,
        "lookup": lookup,
        "merge": merge,
        "verify": verify,
        "index": index,
    }
    for name, command in commands.items():
        cli.command(name)(reporting(spread(command)))
    cli.command("pack")(reporting(pack))
    return cli


class Input(NamedTuple):
    """How the source is read."""

    sql: Annotated[
        str | None, typer.Option(help="Query over the view `input` that makes the entries.")
    ] = None
    offsets: Annotated[str, typer.Option(help="What an offset is: bytes, or sequence.")] = "bytes"
    format: Annotated[str | None, typer.Option(help="Spark's name of the input format.")] = None


class Made(NamedTuple):
    """The files that are published."""

    node: Node = "spark"
    target_entries: Target = 5_000_000
    time_bucket: Annotated[
        str | None, typer.Option(help="Period of one file: '1 hour', '1 day'.")
    ] = None


def build(
    *,
    source: Annotated[str, typer.Argument(help="Parquet, JSON lines, ORC or CSV with entries.")],
    store: Store,
    input_is: Input,
    made: Made,
    output: Output = Form.TABLE,
    session: Session,
) -> None:
    """Publish a table of entries as index files."""
    from tierdex.pipeline import build as run_build

    with session.start("build") as spark:
        frame = _read(spark, source, input_is.format)
        if input_is.sql is not None:
            frame.createOrReplaceTempView("input")
            frame = spark.sql(input_is.sql)
        rows = run_build(frame, store, options={"offsets": input_is.offsets}, **made._asdict())
    write_fields(output, {"rows": rows})


class Wanted(NamedTuple):
    """Which entries answer, and from how much of the store."""

    how: Annotated[str, typer.Option(help="left, or inner.")] = "left"
    max_count: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of entries of one row.")
    ] = None
    on_error: Annotated[str, typer.Option(help="fail, or partial.")] = "fail"
    fresh_within: options.FreshWithin = None
    nodes: Nodes = None
    id_time: Annotated[
        str | None,
        typer.Option(
            help="Time that the message IDs contain: uuidv7, ulid, snowflake:EPOCH_MS or off."
        ),
    ] = None


def lookup(
    *,
    keys: Annotated[str, typer.Argument(help="Table with topic and key, or message_id.")],
    store: Store,
    out: Annotated[
        str | None, typer.Option(help="Write Parquet, JSON or CSV to this place instead of stdout.")
    ] = None,
    wanted: Wanted,
    format: Annotated[
        str | None, typer.Option(help="Spark's name of the format of the keys.")
    ] = None,
    output: Output = Form.TABLE,
    session: Session,
) -> None:
    """Look up many keys at once in the published files.

    Exit code 4 when a file could not be read, or a manifest is too old (--on-error partial).
    """
    from tierdex.pipeline import last_scan
    from tierdex.pipeline import lookup as run_lookup

    rows, columns = None, []
    with session.start("lookup") as spark:
        found = run_lookup(spark, store, _read(spark, keys, format), **wanted._asdict())
        columns = found.columns
        if out is None:
            rows = found.toArrow().to_pylist()
        else:
            found.write.format(_format_of(out, None)).option("header", "true").save(_absolute(out))
        report = last_scan()
    if rows is not None:
        write_rows(output, rows, columns, whole={"entries": rows})
    else:
        write_fields(output, {"entries": 0 if report is None else report.entries, "out": out})
    if report is None:
        return
    tell_age(report)
    for note in report.missing:
        say(f"incomplete: {note}")
    if report.missing:
        raise typer.Exit(Exit.INCOMPLETE)


class Small(NamedTuple):
    """Which files are merged, and what becomes of them."""

    nodes: Nodes = None
    begin: Annotated[
        str | None, typer.Option(help="Earliest time of the entries: ms or RFC 3339.")
    ] = None
    end: Annotated[str | None, typer.Option(help="Latest time of the entries: ms or RFC 3339.")] = (
        None
    )
    below_items: Annotated[int, typer.Option(min=1, help="Merge files with fewer items.")] = (
        1_000_000
    )
    target_items: Annotated[
        int, typer.Option(min=1, help="Maximum number of items of a merge.")
    ] = 20_000_000
    min_files: Annotated[int, typer.Option(min=2, help="Minimum number of files of a merge.")] = 2


def merge(
    *,
    store: Store,
    node: Node = "spark",
    small: Small,
    output: Output = Form.TABLE,
    session: Session,
) -> None:
    """Merge small files into large ones beside readers and writers."""
    from tierdex.pipeline import merge as run_merge

    with session.start("merge") as spark:
        report = run_merge(spark, store, node=node, **small._asdict())
    write_fields(output, asdict(report))


def verify(
    *,
    store: Store,
    nodes: Nodes = None,
    output: Output = Form.TABLE,
    session: Session,
) -> None:
    """Check every checksum and invariant of every file. Exit code 1 when something is broken."""
    from tierdex.pipeline import verify as run_verify

    with session.start("verify") as spark:
        rows = run_verify(spark, store, nodes=nodes).toArrow().to_pylist()
    write_rows(output, rows, ("file_id", "is_sound", "problems"), whole={"files": rows})
    if not all(row["is_sound"] for row in rows):
        raise typer.Exit(Exit.ERROR)


class Columns(NamedTuple):
    """What of a row is indexed."""

    topic: Annotated[str, typer.Option("--topic", "-t", help="A column, or a fixed name.")]
    timestamp: Annotated[
        str | None,
        typer.Option(
            help="Column or SQL expression: ms or a timestamp; of a lake's table optional."
        ),
    ] = None
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Column or SQL expression; repeatable.")
    ] = None
    message_id: Annotated[
        str | None, typer.Option("--message-id", "-i", help="Column or SQL expression.")
    ] = None
    format: Annotated[str | None, typer.Option(help="parquet, json or csv.")] = None
    schema: Annotated[str | None, typer.Option(help="DDL of the columns of JSON or CSV.")] = None
    source_option: Annotated[
        list[str] | None,
        typer.Option("--source-option", metavar="NAME=VALUE", help="Option of a lake's table."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `index_table`."""
        given = self._asdict()
        options = given.pop("source_option") or []
        return {
            **given, "key": self.key or [],
            "read_options": dict(each.partition("=")[::2] for each in options),
        }  # fmt: skip


class Rules(NamedTuple):
    """Which files and rows are indexed, and the files that are published."""

    node: Node = "spark"
    target_entries: Target = 5_000_000
    again: Annotated[
        bool, typer.Option("--again", help="Index files again that are indexed already.")
    ] = False
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip bad rows, and count and name them.")
    ] = False


def index(
    *,
    source: Annotated[
        str,
        typer.Argument(
            help="Parquet, JSON lines or CSV, or a lake's table: delta:PATH, iceberg://…"
        ),
    ],
    store: Store,
    columns: Columns,
    rules: Rules,
    output: Output = Form.TABLE,
    session: Session,
) -> None:
    """Index the rows of tables and logs in place."""
    from tierdex.pipeline import index_table

    with session.start("index") as spark:
        report = index_table(
            spark, _absolute(source), store, **columns.arguments(), **rules._asdict()
        )
    write_fields(output, asdict(report))


def pack(
    target: Annotated[Path, typer.Argument(help="Archive to write: .tar, .tar.gz or .tgz.")],
    output: Output = Form.TABLE,
) -> None:
    """Pack this environment for executors without the package (`--archive`)."""
    from tierdex.pipeline.packing import pack_environment

    write_fields(output, {"archive": str(target), "bytes": pack_environment(target)})


def _read(spark: Any, path: str, format: str | None) -> Any:
    found = _format_of(path, format)
    reader = spark.read.format(found)
    if found == "csv":
        reader = reader.option("header", "true").option("inferSchema", "true")
    return reader.load(_absolute(path))


def _format_of(path: str, format: str | None) -> str:
    return format or _FORMATS.get(Path(path.rstrip("/*")).suffix, "parquet")


def _absolute(path: str) -> str:
    """Return a path that means the same in every process."""
    kind, colon, rest = path.partition(":")
    if kind in ("delta", "iceberg") and not rest.startswith("//"):
        return kind + colon + _absolute(rest)
    return path if "://" in path or path.startswith("file:") else str(Path(path).absolute())
