"""`--show`: what an entry points at: a message of a log, or the bytes of a file on this machine.

The row is parsed again the way it was loaded, and its key or message ID is compared with the one that
was looked up. A file that was changed or replaced since the load therefore shows no wrong row.

Depends on show_source and app.load.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from tierdex.app.load.columns import Template
from tierdex.app.load.csv_rows import CsvFormat, parse_block
from tierdex.app.load.jsonl_rows import parse_jsonl_block
from tierdex.app.load.parquet_rows import read_parquet_row
from tierdex.app.load.records import Block
from tierdex.app.show_source import read_named_row
from tierdex.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from tierdex.app.load.register import LoadedFile, LoadRegister
    from tierdex.filesystem import FileSystem
    from tierdex.index_service.answer import Entry


class Shown(NamedTuple):
    """The bytes of one entry, or (`text` None) why there are none."""

    path: Path | None
    text: bytes | None
    reason: str | None


def show_entry(
    filesystem: FileSystem,
    register: LoadRegister,
    entry: Entry,
    *,
    key: str | None = None,
    message_id: str | None = None,
) -> Shown:
    """Return the bytes an entry points at: a line of CSV or JSONL, a Parquet row as JSON.

    `key` or `message_id` is what was looked up; the row must have it. Raises CorruptFileError when
    the register is damaged, OSError.
    """
    wanted = key if key is not None else message_id
    known = register.of_topic(entry.topic)
    reason = f"no local file was loaded under topic {entry.topic!r}"
    for loaded in known:
        templates = loaded.keys if key is not None else (loaded.message_id,)
        path = Path(loaded.path)
        if not filesystem.exists(path):
            reason = f"{path} is gone"
            continue
        try:
            text, table = _read_row(filesystem, loaded, path, entry)
        except (InvalidRequestError, pa.ArrowInvalid) as error:
            reason = f"{path} was changed since it was loaded: {error}"
            continue
        if table is None:
            continue
        if any(_value(template, table) == wanted for template in templates if template):
            return Shown(path, text, None)
        reason = f"the row in {path} has another key: the file was changed since it was loaded"
    if entry.source is not None and all(entry.source != loaded.path for loaded in known):
        return _show_named(filesystem, entry, wanted)
    return Shown(None, None, reason)


def show_message(
    log: Any, entry: Entry, *, key: str | None = None, message_id: str | None = None
) -> Shown:
    """Return the message that an entry of a log's index points at, if it is the one looked up.

    `log` is a `MessageLog` or a `Client`. Raises what `read` raises.
    """
    try:
        answer = log.read(entry.topic, entry.queue_id, entry.offset, max_count=1)
    except NotFoundError as error:  # a service without a log
        return Shown(None, None, str(error))
    if not len(answer) or answer.first_offset != entry.offset:
        reason = answer.missing[0].reason if answer.missing else "retention has taken it"
        return Shown(None, None, f"the message cannot be shown: {reason}")
    (message,) = answer.messages
    if key not in message.keys and message_id != message.message_id:
        return Shown(None, None, "the message has another key of the same hash")
    return Shown(None, message.body, None)


def _show_named(filesystem: FileSystem, entry: Entry, wanted: str | None) -> Shown:
    """Show a row whose entry names its source, where no load was registered."""
    assert entry.source is not None
    try:
        text, reason = read_named_row(filesystem, entry, wanted or "")
    except (InvalidRequestError, pa.ArrowInvalid) as error:
        text, reason = None, f"{entry.source} was changed since it was indexed: {error}"
    return Shown(Path(entry.source), text, reason)


def _read_row(
    filesystem: FileSystem, loaded: LoadedFile, path: Path, entry: Entry
) -> tuple[bytes, pa.Table | None]:
    """Return a row's bytes and columns; no columns when the entry is not of this file."""
    if loaded.kind == "parquet":
        place = entry.location or {}
        if entry.source != loaded.path or "row" not in place:
            return b"", None
        table = read_parquet_row(path, int(place["row_group"]), int(place["row"]))
        return orjson.dumps(table.to_pylist()[0], default=str), table
    if entry.offset is None or not entry.size:
        return b"", None
    file = filesystem.open(path)
    try:
        text = file.read_at(entry.offset, entry.size)
    finally:
        file.close()
    if len(text) != entry.size:
        raise InvalidRequestError("it is shorter")
    block = Block(
        text + b"\n", entry.offset, 1, np.zeros(1, np.int64), np.array([entry.size]), path
    )
    wanted = _columns(loaded)
    if loaded.kind == "csv":
        form = CsvFormat(loaded.delimiter, loaded.null_values)
        return text, parse_block(block, list(loaded.columns), wanted, form).table
    return text, parse_jsonl_block(block, wanted).table


def _columns(loaded: LoadedFile) -> list[str]:
    texts = [*loaded.keys, *([loaded.message_id] if loaded.message_id else [])]
    names = [name for text in texts for name in Template.parse(text, field="key").columns]
    return list(dict.fromkeys(names))


def _value(template: str, table: pa.Table) -> Any:
    return Template.parse(template, field="key").evaluate(table)[0].as_py()
