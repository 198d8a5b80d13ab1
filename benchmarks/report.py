"""The results: a table on the terminal, results/latest.json, docs/performance.md and its plots."""

from __future__ import annotations

import dataclasses
import json
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bench import line_of, short

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.measure import Row

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "performance"
PACKAGES = ("numba", "numpy", "pyarrow", "rocksdict", "lmdb", "plyvel-ci", "boto3", "pyspark")
TITLES = {
    1: "Putting many", 2: "Getting many", 3: "One at a time", 4: "Compaction", 5: "Filters",
    6: "Size", 7: "The uploaded tier", 8: "HTTP", 9: "Opening and recovery",
    10: "Everything together", 11: "Growth", 12: "Spark",
    13: "Other logs and queues",
    14: "The message log beside its floors",
    15: "One way",
    16: "Lake",
}  # fmt: skip


def print_table(bench: Bench) -> None:
    print()
    for row in bench.rows:
        print(line_of(row))
    judged = [row for row in bench.rows if row.met is not None]
    print(f"\n{sum(row.met is True for row in judged)} of {len(judged)} targets met")
    for skipped in bench.skipped:
        print(f"skipped: {skipped}")


def write_results(bench: Bench, elapsed_s: float) -> None:
    machine = describe_machine()
    rows = [{**dataclasses.asdict(row), "met": row.met} for row in bench.rows]
    document = {
        "scale": bench.scale,
        "seconds": round(elapsed_s),
        "machine": machine,
        "rows": rows,
        "skipped": bench.skipped,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1, default=float) + "\n")
    draw(bench)
    PAGE.write_text(page(bench, machine, elapsed_s))
    print(f"written: {RESULTS.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")


def describe_machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    import psutil

    processor = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "processor": processor,
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "load": [round(load, 1) for load in psutil.getloadavg()],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "revision": revision,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


# -- the page ---------------------------------------------------------------------------------------


def page(bench: Bench, machine: dict[str, Any], elapsed_s: float) -> str:
    size = "full size" if not bench.is_quick else "a tenth of the size (`make bench-quick`)"
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    judged = [row for row in bench.rows if row.met is not None]
    met = sum(row.met is True for row in judged)
    lines = [
        "# Performance",
        "",
        "Written by `make bench` (benchmarks/report.py): do not edit. Every number comes from one run,",
        "contestants taking turns in an alternating order, medians of at least seven rounds, through",
        "the public API. A target of speed is a ratio to a floor or a peer of the same run, so that it means",
        "the same on a machine half as fast; counts, sizes and bytes have targets of their own. Times",
        "belong to this machine, this revision and this hour. What was measured by hand, which targets are",
        "missed and why, and what was tried is in [reasons.md](../benchmarks/reasons.md).",
        "",
        f"* Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux "
        f"{machine['kernel']}, load {machine['load']} at the end",
        f"* Software: Python {machine['python']}, {packages}; revision {machine['revision']}",
        f"* Run: {size}, {elapsed_s / 60:.1f} minutes; {met} of {len(judged)} targets met",
        "",
    ]
    for target, title in TITLES.items():
        rows = [row for row in bench.rows if row.target == target]
        if rows:
            lines += [f"## {target}. {title}", "", *_table(rows), ""]
            lines += [f"![{title}](performance/{name}.svg)\n" for name in _plots_of(target, bench)]
    if bench.skipped:
        lines += ["## Skipped", "", *(f"* {skipped}" for skipped in bench.skipped), ""]
    return "\n".join(lines)


def _table(rows: list[Row]) -> list[str]:
    lines = ["| what | ours | peer | ratio | target | met |", "|---|--:|--:|--:|--:|---|"]
    for row in rows:
        ours = "" if row.ours is None else f"{short(row.ours)} {row.unit}"
        peer = "" if row.peer is None else f"{row.peer_name} {short(row.peer)}"
        ratio = "" if row.ratio is None else short(row.ratio)
        limit = "" if row.limit is None else f"{row.better} {short(row.limit)}"
        met = {True: "yes", False: "**no**", None: ""}[row.met]
        name = row.name.strip() + (f" ({row.note})" if row.note else "")
        lines.append(f"| {name} | {ours} | {peer} | {ratio} | {limit} | {met} |")
    return lines


_PLOT_TARGETS = {
    "put_batch": 1, "recycling": 1, "query_batch": 2, "query": 3, "put": 3, "uploaded": 7,
    "together": 10, "growth": 11,
}  # fmt: skip


def _plots_of(target: int, bench: Bench) -> list[str]:
    return [name for name in bench.plots if _PLOT_TARGETS[name] == target]


# -- the plots --------------------------------------------------------------------------------------

_BAR_UNITS = {
    "put_batch": "ns a key", "recycling": "ns a key", "query_batch": "ns a key",
    "query": "us a query", "put": "us a put", "uploaded": "ms a lookup",
}  # fmt: skip


def draw(bench: Bench) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tierdex"
    PLOTS.mkdir(exist_ok=True)
    for name, data in bench.plots.items():
        if name in _BAR_UNITS:
            _draw_bars(name, data)
        elif name == "growth":
            _draw_growth(data)
        else:
            _draw_latencies(name, data)


def _figure(width: float, height: float) -> Any:
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")


def _save(figure: Any, name: str) -> None:
    from matplotlib import pyplot

    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def _draw_bars(name: str, data: dict[str, float]) -> None:
    ordered = sorted(data.items(), key=lambda pair: -pair[1])
    figure, axes = _figure(7, 0.5 + 0.35 * len(ordered))
    names, values = zip(*ordered, strict=True)
    colors = [_color(each) for each in names]
    bars = axes.barh(names, values, color=colors)
    axes.bar_label(bars, [short(value) for value in values], padding=3)
    axes.set_xscale("log")
    axes.set_xlim(right=max(values) * 2)
    axes.set_xlabel(f"{_BAR_UNITS[name]} (log)")
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, name)


def _color(name: str) -> str:
    if name.startswith(("ours", "received", "os")):
        return "#1f77b4"
    return "#2ca02c" if "floor" in name else "#b0b0b0"


def _draw_growth(data: dict[str, Any]) -> None:
    figure, axes = _figure(7, 3.2)
    sizes, puts = data["put"]
    axes.plot(np.array(sizes) / 1e6, puts, color="#1f77b4", label="put_batch, ns a key")
    axes.set_xlabel("million entries in the index")
    axes.set_ylabel("ns a key")
    axes.set_ylim(bottom=0, top=float(np.percentile(puts, 99)) * 1.5)
    other = axes.twinx()
    sizes, queries = data["query"]
    other.plot(
        np.array(sizes) / 1e6, queries, "o-", color="#d62728", label="query of an old key, us"
    )
    other.set_ylabel("us a query")
    other.set_ylim(bottom=0)
    figure.legend(loc="outside upper left", ncols=2)
    _save(figure, "growth")


def _draw_latencies(name: str, data: dict[str, list[float]]) -> None:
    figure, axes = _figure(7, 3)
    for label, color in (("idle", "#b0b0b0"), ("busy", "#1f77b4")):
        times = np.sort(np.array(data[label])) * 1e6
        axes.plot(times, np.linspace(0, 1, len(times)), label=label, color=color)
    axes.set_xscale("log")
    axes.set_xlabel("us a local query (log)")
    axes.set_ylabel("share of queries")
    axes.legend()
    _save(figure, name)
