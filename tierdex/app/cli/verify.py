"""`tierdex verify`: check every checksum and invariant of a file, a folder, a store or a service.

Depends on the other modules of this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierdex.app.cli import options
from tierdex.app.cli.exits import Exit
from tierdex.app.cli.index_file import check_index_file
from tierdex.app.cli.opening import Target, opened_for_reading, parse_settings
from tierdex.app.cli.options import Form
from tierdex.app.cli.output import write_rows
from tierdex.app.cli.progress_bar import progress_bar
from tierdex.errors import NotFoundError, TierdexError

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE_FOLDERS = ("unsealed", "sealed", "compacted", "uploaded")


def verify(
    place: Annotated[
        str,
        typer.Argument(help="An index or log file, a data folder, a store's URL, or a service's."),
    ],
    store: options.Store = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """Check every checksum and invariant, also of the manifests. Exit code 1: something is broken."""
    if Path(place).is_file():
        findings = [_verify_one_file(Path(place))]
    else:
        with _opened_place(place, store, api_key, parse_settings(setting)) as index:
            findings = list(_verify_all(index))
    write_rows(output, findings, ("file_id", "sound", "problems"), whole={"files": findings})
    if not all(finding["sound"] for finding in findings):
        raise typer.Exit(Exit.ERROR)


def _verify_one_file(path: Path) -> dict[str, Any]:
    problems = check_index_file(path)
    return {"file_id": str(path), "sound": not problems, "problems": problems}


def _opened_place(
    place: str, store: str | None, api_key: str | None, settings: dict[str, Any]
) -> Any:
    if place.startswith(("http://", "https://")):
        return opened_for_reading(Target(url=place, api_key=api_key))
    if "://" in place:
        return opened_for_reading(Target(store=place), settings)
    folder = Path(place)
    if not folder.is_dir():
        raise NotFoundError(f"there is no file or folder {place}")
    if any((folder / state).is_dir() for state in STATE_FOLDERS):
        return opened_for_reading(Target(folder, store), settings)
    return opened_for_reading(Target(store=place), settings)


def _verify_all(index: Any) -> Iterator[dict[str, Any]]:
    for node in index.nodes():
        problems = [] if node.problem is None else [node.problem]
        yield {"file_id": f"node:{node.node}", "sound": not problems, "problems": problems}
    files = list(index.files())
    with progress_bar("verify", is_bytes=False) as progress:
        for number, file in enumerate(files):
            progress(number, len(files))
            reason = getattr(file, "reason", None)
            try:
                problems = [reason] if reason else list(index.verify_file(file.file_id))
            except TierdexError as error:  # one file that cannot be read must not hide the others
                problems = [str(error)]
            yield {"file_id": file.file_id, "sound": not problems, "problems": problems}
