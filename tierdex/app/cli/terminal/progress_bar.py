"""Progress bars on stderr, only when it is a terminal.

Depends on stderr_lines and rich.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierdex.app.cli.terminal.stderr_lines import shown_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(title: str, *, is_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield `progress(done, total)`, which does nothing when stderr is no terminal; total 0: unknown."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        with shown_by(lambda words: bar.update(task, description=words or title)):
            yield lambda done, total: bar.update(task, completed=done, total=total or None)
