"""`tierdex files`: files of index and message log, and their states.

Depends on documents and the rest of app.cli.
"""

from __future__ import annotations

import typer

from tierdex.app.cli.inputs.opening import (
    Target,
    holds_log,
    opened_for_reading,
    opened_log,
    stored_logs,
    stored_manifests,
)
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, tell_unread
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_rows
from tierdex.app.documents import FILE_FIELDS, file_document, log_file_document


def files(
    *,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """List the files of the index, then those of a message log in folder or store, each newest first.

    Exit code 4 when a node of the store cannot be read.
    """
    with opened_for_reading(target, target.settings) as index:
        rows = [file_document(file) for file in index.files()]
        nodes = index.nodes()
    folder = target.folder
    if target.url is None and folder is not None and holds_log(folder):
        with opened_log(Target(folder, target.store), target.settings) as log:
            rows += [log_file_document(file) for file in log.files()]
    elif target.store is not None:
        rows += [file_document(file) for file in stored_logs(stored_manifests(target))]
    write_rows(output, rows, FILE_FIELDS, whole={"files": rows})
    if tell_unread(nodes):
        raise typer.Exit(Exit.INCOMPLETE)
