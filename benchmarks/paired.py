"""`python -m benchmarks.paired OLD_TREE NEW_TREE`: two commits on one machine, as a table of ratios.

Each tree's `tierdex` runs in a process of its own (PYTHONPATH names the tree). Both do the same short
step, one after the other, and who begins changes with every round: a machine that is slower for a
minute is slower for both. A ratio is the median over the rounds of new / old of one round.

    git worktree add /tmp/old COMMIT
    python -m benchmarks.paired /tmp/old . --items 2000000 --rounds 21

Depends on benchmarks.steps, which the two processes take from this checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
# `tierdex` is imported from the tree before this checkout is on the path, for the benchmarks alone.
_PROGRAM = (
    "import sys, tierdex; sys.path.insert(0, {root!r}); from benchmarks.steps import serve; serve()"
)
_REST = os.environ.get("PYTHONPATH", "")
_WARM_UPS = 2  # rounds that load or compile kernels
ITEMS = 2_000_000
ROUNDS = 21


class Worker:
    """One tree's process."""

    def __init__(self, tree: Path, items: int, folder: Path | None) -> None:
        self.tree = tree
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM.format(root=str(ROOT)), folder or "", str(items)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tree), _REST))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def time(self, step: str, number: int) -> tuple[float, float]:
        """Return (wall, CPU) nanoseconds a key of one step."""
        questions = self._pipe(self._process.stdin)
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            print(step, number, file=questions, flush=True)
        return self.answer()

    def answer(self) -> tuple[float, float]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise SystemExit(f"the process of {self.tree} ended: its error stands above")
        wall, cpu = map(float, line.split())
        return wall, cpu

    def end(self) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def main() -> int:
    from benchmarks.steps import STEPS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a checkout of the old commit")
    parser.add_argument("new", type=Path, help="a checkout of the new commit")
    parser.add_argument("--items", type=int, default=ITEMS, help="an index file's capacity")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*", choices=STEPS, default=STEPS)
    parser.add_argument("--folder", type=Path, help="where the data goes")
    arguments = parser.parse_args()
    before = os.getloadavg()
    trees = (arguments.old.resolve(), arguments.new.resolve())
    workers = [Worker(tree, arguments.items, arguments.folder) for tree in trees]
    try:
        for worker in workers:
            worker.answer()
        print(heading(arguments, trees, before))
        for step in arguments.only:
            print(row(step, rounds_of(workers, step, arguments.rounds)), flush=True)
    finally:
        for worker in workers:
            worker.end()
    print(f"\nLoad at the end: {load_text(os.getloadavg())}")
    return 0


def rounds_of(workers: list[Worker], step: str, rounds: int) -> list[list[tuple[float, float]]]:
    """Return the rounds' [old (wall, CPU), new (wall, CPU)]."""
    done = []
    for number in range(_WARM_UPS + rounds):
        order = (0, 1) if number % 2 else (1, 0)
        times = {place: workers[place].time(step, number) for place in order}
        done.append([times[0], times[1]])
    return done[_WARM_UPS:]


def row(step: str, rounds: list[list[tuple[float, float]]]) -> str:
    old, new = (statistics.median(both[place][0] for both in rounds) for place in (0, 1))
    ratios = sorted(new_time[0] / old_time[0] for old_time, new_time in rounds)
    cpu = statistics.median(
        new_time[1] / old_time[1] for old_time, new_time in rounds if old_time[1]
    )
    spread = f"{ratios[len(ratios) // 4]:.2f} to {ratios[3 * len(ratios) // 4]:.2f}"
    return f"| {step} | {old:,.1f} | {new:,.1f} | {statistics.median(ratios):.2f} | {spread} | {cpu:.2f} |"


def heading(
    arguments: argparse.Namespace, trees: tuple[Path, Path], load: tuple[float, float, float]
) -> str:
    old, new = map(revision_of, trees)
    return "\n".join((
        f"Old {old}, new {new}; {arguments.items:,} items a file, {arguments.rounds} rounds, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load before {load_text(load)}",
        "",
        "| step | old, ns a key | new, ns a key | new / old | middle half of the rounds | of CPU time |",
        "|---|--:|--:|--:|--:|--:|",
    ))  # fmt: skip


def load_text(load: tuple[float, float, float]) -> str:
    return ", ".join(f"{value:.1f}" for value in load)


def revision_of(tree: Path) -> str:
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or str(tree)


if __name__ == "__main__":
    sys.exit(main())
