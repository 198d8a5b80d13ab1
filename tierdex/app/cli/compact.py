"""`tierdex compact`: do all that is due, through to published. Depends on opening, output."""

from __future__ import annotations

from typing import Annotated

import typer

from tierdex.app.cli import options
from tierdex.app.cli.opening import opened, parse_settings
from tierdex.app.cli.options import Form
from tierdex.app.cli.output import write_fields


def compact(
    roll: Annotated[
        bool, typer.Option("--roll", help="Roll the unsealed file first, so that it goes too.")
    ] = False,
    data: options.Data = None,
    store: options.Store = None,
    url: options.Url = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """Compact, upload and publish all that is due."""
    settings = {"background": False, **parse_settings(setting)}
    with opened(data, store, url, api_key, writes=True, settings=settings) as index:
        if roll:
            index.roll()
        done = index.run_compaction()
        status = index.compaction_status()
    write_fields(output, {"done": done, **status})
