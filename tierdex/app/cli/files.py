"""`tierdex files`: index files and their states. Depends on opening, output."""

from __future__ import annotations

from tierdex.app.cli import options
from tierdex.app.cli.opening import opened, parse_settings
from tierdex.app.cli.options import Form
from tierdex.app.cli.output import write_rows
from tierdex.app.documents import FILE_FIELDS, file_document
from tierdex.app.times import format_time

_TIMES = ("begin", "min_time", "max_time")


def files(
    data: options.Data = None,
    store: options.Store = None,
    url: options.Url = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """List index files, newest first."""
    options_ = parse_settings(setting)
    with opened(data, store, url, api_key, writes=False, settings=options_) as index:
        rows = [file_document(file) for file in index.files()]
    if output is Form.TABLE:
        for row in rows:
            for name in _TIMES:
                row[name] = None if row[name] is None else format_time(row[name])
    write_rows(output, rows, FILE_FIELDS, whole={"files": rows})
