"""`python -m benchmarks [--quick]`: measure, print the table, write the results and the page."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.bench import Bench, Stopwatch, warm_memory
from benchmarks.report import print_table, write_results

PARTS = (
    "recycling",
    "embedded",
    "compaction",
    "filters",
    "sizes",
    "uploaded",
    "service",
    "opening",
    "together",
    "growth",
    "spark",
    "log_peers",
    "message_log",
    "one_way",
    "lake",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, about 2 minutes")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="some parts; nothing is written")
    parser.add_argument(
        "--folder", type=Path, help="where the data goes; default: the temporary folder"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and folders go with us
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(prefix="tierdex-bench-", dir=arguments.folder) as root:
        scale = 0.1 if arguments.quick else 1.0
        bench = Bench(scale, Path(root))
        warm_memory(bench.size(8 << 30))
        for name in arguments.only or PARTS:
            begin = watch.elapsed()
            import_module(f"benchmarks.{name}").run(bench)
            print(f"     ({name}: {watch.elapsed() - begin:.0f} s)", flush=True)
    print_table(bench)
    if not arguments.only:
        write_results(bench, watch.elapsed())
    return 0


if __name__ == "__main__":
    sys.exit(main())
