"""`tierdex inspect FILE`: what one index file holds. Depends on indexfile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tierdex.app.cli import options
from tierdex.app.cli.options import Form
from tierdex.app.cli.output import write_fields
from tierdex.errors import NotFoundError


def inspect(
    file: Annotated[Path, typer.Argument(help="An index file, of either form.")],
    output: options.Output = Form.TABLE,
) -> None:
    """Describe one index file: header, fill, chains or runs, dictionaries, pages."""
    from tierdex.filesystem import LocalFileSystem
    from tierdex.indexfile.dump import describe_file

    if not file.is_file():
        raise NotFoundError(f"there is no file {file}")
    write_fields(output, describe_file(LocalFileSystem(), file))
