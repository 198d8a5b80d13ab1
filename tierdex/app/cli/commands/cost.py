"""`tierdex cost`: the monthly bill of a store, from its published files, given prices and expected requests.

Arithmetic over the files of index and logs, and `nodes()`: storage, PUTs of files and live records, LISTs and
GETs of readers that refresh, GETs of lookups. With the URL of a running service its metrics tell what it
really sends.

Depends on the rest of app.cli, clock, compactor, lifecycle, settings and storage_layer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tierdex.app.cli.inputs.opening import (
    Target,
    opened_for_reading,
    stored_logs,
    stored_manifests,
)
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, tell_unread
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields
from tierdex.clock import SystemClock
from tierdex.compactor.heartbeat import EARLY
from tierdex.lifecycle.manifests.file_row import INDEX_KIND, LOG_KIND, NOTES_KIND
from tierdex.settings import load_settings
from tierdex.storage_layer.metered import LOOKUPS, MANIFESTS, OTHER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tierdex.lifecycle.nodes.node_reading import NodeReading

_GIB = 1 << 30
_MONTH_S = 30 * 86_400
_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="(\w+)"')
_PUTS = ("put", "put_if_absent", "upload")
_LISTS = ("list", "list_folders")  # a LIST has the price of a PUT
_GETS = ("get", "head")


class Prices(NamedTuple):
    """USD for a GiB stored a month, a PUT or LIST, and a GET."""

    gib_month_usd: Annotated[
        float, typer.Option(min=0, help="Price of one GiB stored for a month.")
    ] = 0.023
    put_usd: Annotated[float, typer.Option(min=0, help="Price of a PUT or a LIST.")] = 0.000005
    get_usd: Annotated[float, typer.Option(min=0, help="Price of a GET.")] = 0.0000004


class Stored(NamedTuple):
    """The published files of one kind, together."""

    files: int
    items: int  # entries, or messages
    bytes: int

    @classmethod
    def of(cls, files: Iterable[Any]) -> Stored:
        listed = list(files)
        return cls(len(listed), sum(f.item_count for f in listed), sum(f.bytes for f in listed))


class Requests(NamedTuple):
    """Requests a month."""

    puts: float  # of files and commits
    live_records: float
    lists: float
    refreshes: float  # GETs of readers that look for new commits
    lookups: float  # GETs of lookups
    maintenance: float = 0  # GETs of merges, verification, queue tables
    peers: float = 0  # between nodes: no request to the store


def cost(
    *,
    lookups: Annotated[
        int,
        typer.Option(min=0, help="Lookups per month that find their key in one published file."),
    ] = 100_000,
    readers: Annotated[
        int, typer.Option(min=0, help="Processes that refresh manifests; not with --url.")
    ] = 1,
    prices: Prices,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Estimate the monthly bill of a store. Exit code 4 when a node cannot be read.

    With --url the bill uses the requests that the service has counted since its start.
    """
    now_ms = SystemClock().now_ms()
    with opened_for_reading(target, target.settings) as index:
        published = [file for file in index.files() if file.state == "uploaded"]
        readings = stored_manifests(target)
        published += stored_logs(readings, notes=True)
        nodes = index.nodes()
        metrics = index.metrics() if target.url is not None else None
    settings = load_settings(**target.settings)
    since_ms = now_ms - 1000 * _MONTH_S
    of_late = [file for file in published if (file.sealed_at or 0) > since_ms]
    live = sum(node.standing in ("live", "late") for node in nodes)
    looks = readers * _MONTH_S / settings.refresh_interval
    requests = Requests(
        puts=2 * (len(of_late) + merged_files(readings, since_ms)),
        live_records=live * _MONTH_S / (EARLY * settings.live_interval),
        lists=looks,
        refreshes=looks * len(nodes),
        lookups=lookups,
        peers=lookups * live if settings.peers != "off" else 0,
    )
    document: dict[str, Any] = {"counted_by_service_s": None}
    if metrics is not None:
        requests, document["counted_by_service_s"] = counted_requests(metrics, now_ms / 1000)
    document |= monthly_bill(
        Stored.of(file for file in published if file.kind == INDEX_KIND),
        Stored.of(file for file in published if file.kind == LOG_KIND),
        Stored.of(file for file in published if file.kind == NOTES_KIND),
        requests,
        prices,
    )
    document |= dead_part(published, prices.gib_month_usd)
    write_fields(output, document)
    if tell_unread(nodes):
        raise typer.Exit(Exit.INCOMPLETE)


def dead_part(published: Iterable[Any], gib_month_usd: float) -> dict[str, Any]:
    """Return what entries of tables' removed rows cost a month, until merges leave them out."""
    measured = [file for file in published if getattr(file, "dead_items", None) and file.item_count]
    size = sum(file.bytes * file.dead_items / file.item_count for file in measured)
    return {
        "dead_entries": sum(file.dead_items for file in measured),
        "dead_usd": size / _GIB * gib_month_usd,
    }


def merged_files(readings: Iterable[NodeReading], since_ms: int) -> int:
    """Return how many files were merged into those that were sealed after `since_ms`: each was put, too."""
    rows = (row for reading in readings for row in reading.state.files.values())
    return len({part for row in rows if row.sealed_at_ms > since_ms for part in row.parts})


def counted_requests(metrics: str, now_s: float) -> tuple[Requests, float]:
    """Return what a service sends in a month, by its counters, and the seconds that it has counted."""
    counts: Counter[tuple[str, str]] = Counter()
    started, peers = now_s, 0.0
    for name, labels, value in _SAMPLE.findall(metrics):
        if name == "tierdex_store_requests_total":
            told = dict(_LABEL.findall(labels))
            counts[told.get("purpose", OTHER), told["verb"]] += round(float(value))
        elif name == "tierdex_peer_requests_total":
            peers += float(value)
        elif name == "tierdex_start_time_seconds":
            started = float(value)
    seconds = max(1.0, now_s - started)
    purposes = {purpose for purpose, _ in counts}

    def month(verbs: Collection[str], *among: str) -> float:
        found = sum(counts[purpose, verb] for purpose in among or purposes for verb in verbs)
        return found * _MONTH_S / seconds

    # The only object of a manifest that is overwritten is the hint, with the live record in it.
    live = month(("put",), MANIFESTS)
    found = Requests(
        puts=month(_PUTS) - live,
        live_records=live,
        lists=month(_LISTS),
        refreshes=month(_GETS, MANIFESTS),
        lookups=month(_GETS, LOOKUPS),
        maintenance=month(_GETS, OTHER),
        peers=peers * _MONTH_S / seconds,
    )
    return found, round(seconds)


def monthly_bill(
    index: Stored, log: Stored, notes: Stored, requests: Requests, prices: Prices
) -> dict[str, Any]:
    """Return the lines of the bill in USD, of files of index and log and the log's notes of itself.

    Each took two PUTs, once.
    """
    stored = (index.bytes + log.bytes + notes.bytes) / _GIB * prices.gib_month_usd
    written = (requests.puts + requests.live_records) * prices.put_usd
    followed = requests.lists * prices.put_usd + requests.refreshes * prices.get_usd
    asked = requests.lookups * prices.get_usd
    kept = requests.maintenance * prices.get_usd
    return {
        "files": index.files,
        "items": index.items,
        "bytes": index.bytes,
        "bytes_an_item": round(index.bytes / index.items, 2) if index.items else None,
        "log_files": log.files,
        "log_messages": log.items,
        "log_bytes": log.bytes,
        "log_notes_bytes": notes.bytes,
        "puts_month": round(requests.puts),
        "live_records_month": round(requests.live_records),
        "lists_month": round(requests.lists),
        "refresh_gets_month": round(requests.refreshes),
        "lookup_gets_month": round(requests.lookups),
        "maintenance_gets_month": round(requests.maintenance),
        "peer_requests_month": round(requests.peers),
        "storage_usd_month": round(stored, 6),
        "writes_usd_month": round(written, 6),
        "refreshes_usd_month": round(followed, 6),
        "lookups_usd_month": round(asked, 6),
        "maintenance_usd_month": round(kept, 6),
        "total_usd_month": round(stored + written + followed + asked + kept, 6),
        "uploads_usd_once": round(2 * (index.files + log.files + notes.files) * prices.put_usd, 6),
    }
