"""The Spark session of a `tierdex spark` command: its options, the session, its progress bar.

A command's first parameter is `start`; `in_session` puts the session's options in its place::

    def verify(start: Start, store: Store, ...)      with start() as spark: ...
    tierdex spark verify STORE --master spark://host:7077 --conf spark.executor.cores=2

Depends on progress_bar and pipeline.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierdex.app.cli.terminal.progress_bar import progress_bar
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

# typer evaluates the annotations of commands, so this name exists at run time.
Start = Callable[[], AbstractContextManager[Any]]

_POLL_S = 0.2


def _session_options(
    *,
    master: Annotated[
        str,
        typer.Option(help="Spark's master: local[*], spark://HOST:PORT.", envvar="TIERDEX_MASTER"),
    ] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark.")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(help="Archive of `tierdex spark pack`, for executors without the package."),
    ] = None,
    executor_python: Annotated[
        str | None, typer.Option(help="The executors' Python, with --archive.")
    ] = None,
) -> dict[str, Any]:
    """Declare the options once; return them as arguments of `make_session`."""
    settings = {}
    for text in conf or []:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidRequestError("is NAME=VALUE", field="--conf")
        settings[name] = value
    return {
        "master": master,
        "conf": settings,
        "archive": archive,
        "executor_python": executor_python,
    }


def in_session(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the session's options in place of its first parameter `start`."""
    shared = inspect.signature(_session_options, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)
    first, *own = signature.parameters.values()
    assert first.name == "start", command

    @wraps(command)
    def run(**options: Any) -> None:
        chosen = _session_options(**{name: options.pop(name) for name in shared})
        command(partial(_session, command.__name__, chosen), **options)

    # typer reads both.
    parameters = [*own, *shared.values()]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


@contextmanager
def _session(title: str, options: dict[str, Any]) -> Iterator[Any]:
    """Yield a session and show the progress of its tasks; stop it at the end."""
    from tierdex.pipeline import make_session, plain_errors

    with plain_errors():
        spark = make_session(name=f"tierdex {title}", **options)
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
