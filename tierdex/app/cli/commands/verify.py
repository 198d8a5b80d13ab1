"""`tierdex verify`: check every checksum and invariant of a file, a folder, a store or a service.

Depends on indexfile, logfile, rocketmq, index_service.proof_check, pipeline.logs.log_check and
the rest of app.cli.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from tierdex.app.cli.inputs.opening import (
    Target,
    holds_log,
    opened_for_reading,
    opened_log,
    opened_store,
    parse_settings,
)
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, say
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_rows
from tierdex.app.cli.terminal.progress_bar import progress_bar
from tierdex.errors import CorruptFileError, InvalidRequestError, NotFoundError, TierdexError

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE_FOLDERS = ("unsealed", "sealed", "compacted", "uploaded")
_SERVICES = ("http://", "https://")


def verify(
    place: Annotated[
        str | None,
        typer.Argument(
            help="An index or log file, a data folder, or the URL of a store or a service."
        ),
    ] = None,
    proof: Annotated[
        Path | None,
        typer.Option(
            help="Check this proof, or an answer that contains one, against the store at PLACE."
        ),
    ] = None,
    entries: Annotated[
        bool,
        typer.Option(
            "--entries", help="Compare the index with the messages of the store's logs, too."
        ),
    ] = False,
    store: options.Store = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """Check every checksum and invariant of files and manifests. Exit code 1: a check failed.

    In a store the command checks every object against its manifest row, and that the offsets of each queue
    continue from file to file. With --proof it checks the proof of an answer (`query --explain --proof`)
    against the store.
    """
    place = place or store
    if place is None:
        raise InvalidRequestError("name what to verify", field="PLACE")
    if proof is not None:
        _verify_proof(place, proof, parse_settings(setting), output)
        return
    if Path(place).is_file():
        findings = [_verify_one_file(Path(place))]
    else:
        findings, has_log = [], holds_log(Path(place))
        if not has_log or _holds_index(Path(place)):
            with _opened_place(place, store, api_key, parse_settings(setting)) as index:
                findings += [_verify_node(node) for node in index.nodes()]
                findings += _verify_files(index)
        if has_log:
            with opened_log(Target(Path(place), store), parse_settings(setting)) as log:
                findings += _verify_files(log)
        elif not place.startswith(_SERVICES) and not _holds_index(Path(place)):
            findings += _verify_stored_logs(place, entries=entries)
    write_rows(output, findings, ("file_id", "sound", "problems"), whole={"files": findings})
    if not all(finding["sound"] for finding in findings):
        raise typer.Exit(Exit.ERROR)


def _verify_proof(place: str, file: Path, settings: dict[str, Any], output: Form) -> None:
    from tierdex.index_service.proof_check import check_proof_in

    try:
        proof = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"{file} is not JSON: {error}", field="--proof") from error
    checked = check_proof_in(place, proof, settings)
    problems = checked.problems
    finding = {
        "proof": str(file), "sound": not problems, "absent": checked.is_absent,
        "time_ms": checked.time_ms, "problems": problems,
    }  # fmt: skip
    write_rows(output, [finding], tuple(finding), whole=finding)
    for name in checked.unpublished:
        say(f"not in the store: {name} was read by the maker of the proof alone")
    if problems:
        raise typer.Exit(Exit.ERROR)


def _verify_one_file(path: Path) -> dict[str, Any]:
    problems = check_index_file(path)
    return {"file_id": str(path), "sound": not problems, "problems": problems}


def _opened_place(
    place: str, store: str | None, api_key: str | None, settings: dict[str, Any]
) -> Any:
    if place.startswith(_SERVICES):
        return opened_for_reading(Target(url=place, api_key=api_key))
    if "://" in place:
        return opened_for_reading(Target(store=place), settings)
    folder = Path(place)
    if not folder.is_dir():
        raise NotFoundError(f"there is no file or folder {place}")
    if _holds_index(folder):
        return opened_for_reading(Target(folder, store), settings)
    return opened_for_reading(Target(store=place), settings)


def _holds_index(folder: Path) -> bool:
    return any((folder / state).is_dir() for state in STATE_FOLDERS)


def _verify_stored_logs(place: str, *, entries: bool) -> Iterator[dict[str, Any]]:
    from tierdex.pipeline.logs.log_check import check_stored_logs

    for file_id, problems in check_stored_logs(opened_store(place), entries=entries):
        yield {"file_id": file_id, "sound": not problems, "problems": problems}


def _verify_node(node: Any) -> dict[str, Any]:
    problems = [] if node.problem is None else [node.problem]
    return {"file_id": f"node:{node.node}", "sound": not problems, "problems": problems}


def _verify_files(index: Any) -> Iterator[dict[str, Any]]:
    """Verify every file of an index, a service or a message log."""
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


def check_index_file(path: Path) -> list[str]:
    """Return every broken rule of a file in words; empty means it is sound. Raises OSError."""
    from tierdex.filesystem import LocalFileSystem
    from tierdex.indexfile.check import check_file
    from tierdex.logfile.header import is_log_file
    from tierdex.rocketmq.file import RocketmqIndexFile, is_rocketmq_file

    filesystem = LocalFileSystem()
    if is_log_file(filesystem, path):
        from tierdex.logfile.check import check_log_file

        return check_log_file(filesystem, path)
    if not is_rocketmq_file(filesystem, path):
        return check_file(filesystem, path)
    try:
        with closing(RocketmqIndexFile.open(filesystem, path)) as file:
            return file.check()
    except CorruptFileError as error:
        return [error.reason]
