"""The Spark session of a `tierdex spark` command: its options, the session, its progress bar.

Depends on progress_bar and pipeline.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tierdex.app.cli.terminal.progress_bar import progress_bar
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_S = 0.2


class Session(NamedTuple):
    """The options of a session; `start` opens it."""

    master: Annotated[
        str,
        typer.Option(help="Spark's master: local[*], spark://HOST:PORT.", envvar="TIERDEX_MASTER"),
    ] = "local[*]"
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark.")
    ] = None
    archive: Annotated[
        str | None,
        typer.Option(help="Archive of `tierdex spark pack`, for executors without the package."),
    ] = None
    executor_python: Annotated[
        str | None, typer.Option(help="The executors' Python, with --archive.")
    ] = None

    @contextmanager
    def start(self, title: str) -> Iterator[Any]:
        """Yield the session of a job, and show the progress of its tasks; stop it at the end."""
        from tierdex.pipeline import make_session, plain_errors

        settings = {}
        for text in self.conf or []:
            name, separator, value = text.partition("=")
            if not separator:
                raise InvalidRequestError("is NAME=VALUE", field="--conf")
            settings[name] = value
        with plain_errors():
            spark = make_session(
                self.master, name=f"tierdex {title}", conf=settings, archive=self.archive,
                executor_python=self.executor_python,
            )  # fmt: skip
            spark.sparkContext.setLogLevel("ERROR")
            try:
                with _progress_of(spark, title):
                    yield spark
            finally:
                spark.stop()


@contextmanager
def _progress_of(spark: Any, title: str) -> Iterator[None]:
    """Show how many tasks of the running stages are done."""
    stop = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def follow(progress: Callable[[int, int], None]) -> None:
        while not stop.wait(_POLL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                progress(done, sum(stage.numTasks for stage in known))

    with progress_bar(title, is_bytes=False) as progress:
        follower = threading.Thread(target=follow, args=(progress,), daemon=True)
        follower.start()
        try:
            yield
        finally:
            stop.set()
            follower.join()
