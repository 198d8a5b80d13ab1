"""`make run`, `python -m tools.demo`: a year of real flights in a message log, a file a month, served."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tierdex.app.cli.commands.keys import open_key_file
from tierdex.app.cli.commands.serve import Served, run, server_settings
from tierdex.app.cli.inputs.opening import DEFAULT_DATA, holds_log, parse_settings
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import reporting, say
from tierdex.app.cli.terminal.progress_bar import progress_bar
from tierdex.app.cli.terminal.stderr_lines import show_compilations, show_warnings_with_fields
from tierdex.errors import InvalidRequestError

TRY_INDEX = """
Try, in another terminal:
  {tierdex} query -t MQ -k N725MQ -b 2013-01-01T00:00:00Z -e 2013-01-07T23:59:59Z --url {url}
  {tierdex} query -t UA -k N14228 -m 3 --data {data} --explain --show
  {tierdex} files --data {data}
  curl '{url}/v1/entries?topic=UA&key=UA1545&max_count=3'
or open {url} in a browser.
"""

TRY = """
Try, in another terminal:
  {tierdex} log get -t UA -k N14228 -m 3 --url {url}
  {tierdex} query -t MQ -k N725MQ -m 3 --data {data} --explain --show
  {tierdex} log tail -t MQ -q 2 --no-follow --url {url}
  {tierdex} files --data {data}
  curl '{url}/v1/messages?topic=UA&key=UA1545&max_count=3'
or open {url} in a browser: a lookup shows the flights, "Messages" a queue.
"""
INDEX_DATA = Path("data-index")
_NO_MERGE = 1000
_JOURNAL_BYTES = 64 << 20  # a month is 3 MB, and twelve journals of the usual size reserve 12 GiB


def demo(
    port: Annotated[int, typer.Option(help="Port; 0: any free one.")] = 8080,
    index: Annotated[
        bool,
        typer.Option(
            "--index", help="Load only the locations of the flights, which stay in a CSV file."
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Load and publish, and do not serve.")
    ] = False,
    data: options.Data = None,
    store: options.Store = None,
    setting: options.Set = None,
) -> None:
    """Append a year of real flights to a message log, and serve it on http://127.0.0.1:8080."""
    folder = data or (INDEX_DATA if index else DEFAULT_DATA)
    settings = parse_settings(setting)
    if not index:
        settings.setdefault("merge_min_files", _NO_MERGE)  # a file a month is to be looked at
        settings.setdefault("journal_bytes", _JOURNAL_BYTES)
    server = server_settings({"port": port}, settings)
    (_load if index else _load_messages)(folder, store, settings)
    if not once:

        def announce(url: str) -> None:
            say(f"serving on {url}")
            say((TRY_INDEX if index else TRY).format(url=url, data=folder, tierdex=_command()))

        run(Served(folder, store, settings), server, open_key_file(folder, None), announce)


def _load_messages(folder: Path, store: str | None, settings: dict[str, Any]) -> None:
    from tierdex.filesystem import LocalFileSystem
    from tierdex.log_service.message_log import MessageLog
    from tools.demo.flight_messages import FlightMessages
    from tools.demo.flights import load_demo, unpack_demo

    filesystem = LocalFileSystem()
    if filesystem.is_folder(folder / "unsealed") and not holds_log(folder):
        raise InvalidRequestError(
            f"{folder} holds the index of an earlier run: remove it, or give `--data`, or `--index`",
            field="data",
        )
    with MessageLog.open(folder, store=store, **{**settings, "background": False}) as log:
        csv_path = unpack_demo(folder, filesystem)
        messages = FlightMessages(log, csv_path, filesystem)
        with progress_bar("appending flights") as progress:
            report = load_demo(messages, folder, progress, names_source=False)
        if not report.reused:
            say("rolling, compacting")
            log.roll()
            log.catch_up()
            log.index.roll()
            log.run_compaction()
        files = sum(file.message_count > 0 for file in log.files())
    filesystem.unlink(csv_path)  # the log has every row
    say(f"{report.rows:,} flights lie in {files} files of the message log, one a month")


def _command() -> str:
    """Return how a shell in this folder calls the `tierdex` of this environment."""
    return os.path.relpath(Path(sys.executable).with_name("tierdex"))


def _load(folder: Path, store: str | None, settings: dict[str, Any]) -> None:
    from tierdex.app.load.register import LoadRegister
    from tierdex.filesystem import LocalFileSystem
    from tierdex.index_service.index import Index
    from tools.demo.flights import load_demo

    with Index.open(folder, store=store, **{**settings, "background": False}) as index:
        with progress_bar("loading flights") as progress:
            register = LoadRegister(LocalFileSystem(), folder)
            report = load_demo(index, folder, progress, register=register)
        if not report.reused:
            say("rolling, compacting, publishing")
            index.roll()
            index.run_compaction()
    how = "found" if report.reused else "loaded"
    say(f"{how} {report.rows:,} flights ({report.skipped:,} have no tail number)")


if __name__ == "__main__":
    show_compilations()
    show_warnings_with_fields()
    cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    cli.command()(reporting(demo))
    cli(prog_name="python -m tools.demo")
