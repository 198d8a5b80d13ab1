"""`tierdex demo` (`make run`): a year of real flights, loaded, published, and served.

Depends on app.demo, app.load, index_service and the other modules of this folder.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tierdex.app.cli import options
from tierdex.app.cli.exits import say
from tierdex.app.cli.keys import open_key_file
from tierdex.app.cli.opening import DEFAULT_DATA, parse_settings
from tierdex.app.cli.progress_bar import progress_bar
from tierdex.app.cli.serve import Served, run, server_settings

TRY = """
Try, in another terminal:
  {tierdex} query -t MQ -k N725MQ -b 2013-01-01T00:00:00Z -e 2013-01-07T23:59:59Z --url {url}
  {tierdex} query -t UA -k N14228 -m 3 --data {data} --explain --show
  {tierdex} files --data {data}
  curl '{url}/v1/entries?topic=UA&key=UA1545&max_count=3'
or open {url} in a browser.
"""


def demo(
    port: Annotated[int, typer.Option(help="Port; 0: any free one.")] = 8080,
    once: Annotated[bool, typer.Option("--once", help="Load and publish, do not serve.")] = False,
    data: options.Data = None,
    store: options.Store = None,
    setting: options.Set = None,
) -> None:
    """Load a year of real flights, publish them, and serve on http://127.0.0.1:8080."""
    folder = data or DEFAULT_DATA
    settings = parse_settings(setting)
    server = server_settings(None, port, None, settings)
    _load(folder, store, settings)
    if not once:

        def announce(url: str) -> None:
            say(f"serving on {url}")
            say(TRY.format(url=url, data=folder, tierdex=_command()))

        run(Served(folder, store, settings), server, open_key_file(folder, None), announce)


def _command() -> str:
    """Return how a shell in this folder calls the program that runs now."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    return called.name if found and Path(found).samefile(called) else str(called)


def _load(folder: Path, store: str | None, settings: dict[str, Any]) -> None:
    from tierdex.app.demo.demo_data import load_demo
    from tierdex.app.load.register import LoadRegister
    from tierdex.filesystem import LocalFileSystem
    from tierdex.index_service.index import Index

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
