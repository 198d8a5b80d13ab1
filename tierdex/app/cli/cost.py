"""`tierdex cost`: the monthly cost of the published files, from their sizes and given prices.

Pure arithmetic over `files()`: storage, the PUTs that made the files, the GETs of lookups.

Depends on the other modules of this folder.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tierdex.app.cli import options
from tierdex.app.cli.exits import Exit, tell_unread
from tierdex.app.cli.opening import Target, opened_for_reading, parse_settings
from tierdex.app.cli.options import Form
from tierdex.app.cli.output import write_fields

_GIB = 1 << 30


def cost(
    lookups: Annotated[
        int, typer.Option(help="Lookups a month that find their key in one published file.")
    ] = 100_000,
    gib_month_usd: Annotated[float, typer.Option(help="Price of a GiB stored a month.")] = 0.023,
    put_usd: Annotated[float, typer.Option(help="Price of a PUT.")] = 0.000005,
    get_usd: Annotated[float, typer.Option(help="Price of a GET.")] = 0.0000004,
    data: options.Data = None,
    store: options.Store = None,
    url: options.Url = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """Estimate the monthly bill of what is published. Exit code 4 when a node cannot be read."""
    target = Target(data, store, url, api_key)
    with opened_for_reading(target, parse_settings(setting)) as index:
        published = [file for file in index.files() if file.state == "uploaded"]
        nodes = index.nodes()
    write_fields(
        output,
        monthly_bill(
            [file.bytes for file in published],
            sum(file.item_count for file in published),
            lookups=lookups,
            gib_month_usd=gib_month_usd,
            put_usd=put_usd,
            get_usd=get_usd,
        ),
    )
    if tell_unread(nodes):
        raise typer.Exit(Exit.INCOMPLETE)


def monthly_bill(
    sizes: list[int], items: int, *, lookups: int, gib_month_usd: float, put_usd: float,
    get_usd: float,
) -> dict[str, Any]:  # fmt: skip
    """Return the lines of the bill in USD. A lookup is one range GET, a file two PUTs, once."""
    stored = sum(sizes) / _GIB * gib_month_usd
    asked = lookups * get_usd
    return {
        "files": len(sizes),
        "items": items,
        "bytes": sum(sizes),
        "bytes_an_item": round(sum(sizes) / items, 2) if items else None,
        "storage_usd_month": round(stored, 6),
        "lookups_usd_month": round(asked, 6),
        "total_usd_month": round(stored + asked, 6),
        "uploads_usd_once": round(2 * len(sizes) * put_usd, 6),
    }
