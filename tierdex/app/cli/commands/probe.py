"""`tierdex probe`: put canaries, look them up, and report the outcome.

Depends on app.probe, disk_errors and the rest of app.cli.
"""

from __future__ import annotations

import contextlib
import signal
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tierdex.app.cli.inputs.opening import Target, opened_for_writing
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, say
from tierdex.app.cli.terminal.options import Form, Level
from tierdex.app.cli.terminal.output import write_rows
from tierdex.disk_errors import naming
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.app.probe.metrics import ProbeMetrics
    from tierdex.app.probe.prober import Prober, Step

COLUMNS = ("verb", "state", "outcome", "ms", "detail")
DEFAULT_MEMORY = Path("tierdex-probe.json")


class Rules(NamedTuple):
    """How canaries are put, and for how long they are looked up."""

    publish_every: Annotated[
        float,
        typer.Option(
            help="Seconds between two canaries that are checked until they are published.", min=0.0
        ),
    ] = 3600.0
    durability: Annotated[Level, typer.Option(help="Level of the acknowledgement of a canary.")] = (
        Level.OS
    )
    remember: Annotated[
        float,
        typer.Option(help="Seconds for which a canary is looked up; less than the retention."),
    ] = 7 * 86_400.0
    memory: Annotated[Path, typer.Option(help="File that records the canaries between runs.")] = (
        DEFAULT_MEMORY
    )


def probe(
    *,
    once: Annotated[bool, typer.Option("--once", help="Run one round.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two rounds.", min=0.1)] = 60.0,
    rules: Rules,
    metrics_file: Annotated[
        Path | None,
        typer.Option(help="Write Prometheus metrics here after each round (textfile collector)."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics on this port of 127.0.0.1.")
    ] = None,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Put canary entries and look them up in every state, to find a missed entry before a user does.

    Exit code 0 every canary was found, 3 a canary was missed or is wrong, 4 incomplete, 1 no answer. Without
    --once the command runs until it is stopped; the exit code is that of the last round.
    """
    try:
        from tierdex.app.probe.metrics import ProbeMetrics
    except ImportError as error:
        raise InvalidRequestError(
            f"pip install 'tierdex[server]' ({error})", field="probe"
        ) from error
    metrics = ProbeMetrics()
    with (
        opened_for_writing(target, target.settings) as index,
        _served(metrics, port),
    ):
        prober = _make_prober(index, rules)
        code = _run(prober, metrics, metrics_file, output, None if once else interval)
    if code:
        raise typer.Exit(code)


def _make_prober(index: Any, rules: Rules) -> Prober:
    from tierdex.app.probe.prober import Memory, Prober
    from tierdex.clock import SystemClock
    from tierdex.filesystem import LocalFileSystem
    from tierdex.ids import SystemIds

    ids = SystemIds()
    return Prober(
        index,
        clock=SystemClock(),
        ids=ids,
        memory=Memory(LocalFileSystem(), rules.memory.absolute()),
        durability=rules.durability.value,
        remember_s=rules.remember,
        publish_every_s=rules.publish_every,
    )


def _run(
    prober: Prober,
    metrics: ProbeMetrics,
    metrics_file: Path | None,
    output: Form,
    interval: float | None,
) -> IntEnum | int:
    """Do one round, or rounds until a signal arrives; return the exit code of the last one."""
    from tierdex.clock import Bell, SystemClock
    from tierdex.filesystem import LocalFileSystem
    from tierdex.whole_file import replace_file

    clock, stopped = SystemClock(), Bell()
    if interval is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
    while True:
        steps = prober.probe()
        metrics.note(steps, prober.canaries, clock.now_ms())
        if metrics_file is not None:
            replace_file(LocalFileSystem(), metrics_file.absolute(), metrics.render())
        _write(output, steps)
        if interval is None or clock.wait(stopped, interval):
            return _exit_code(steps)


def _write(output: Form, steps: list[Step]) -> None:
    rows = [
        {
            "verb": step.verb,
            "state": step.state,
            "outcome": step.outcome.value,
            "ms": round(step.seconds * 1000, 3),
            "detail": step.detail,
        }
        for step in steps
    ]
    write_rows(output, rows, COLUMNS, whole={"steps": rows})
    for row in rows:
        if row["detail"]:
            say(f"{row['verb']} {row['outcome']}: {row['detail']}")


def _exit_code(steps: list[Step]) -> int:
    from tierdex.app.probe.prober import Outcome, gravest

    return {
        Outcome.WRONG: Exit.NOT_FOUND,
        Outcome.MISSED: Exit.NOT_FOUND,
        Outcome.INCOMPLETE: Exit.INCOMPLETE,
        Outcome.FAILED: Exit.ERROR,
        Outcome.OK: Exit.FOUND,
    }[gravest(steps)]


@contextlib.contextmanager
def _served(metrics: ProbeMetrics, port: int | None) -> Iterator[None]:
    """Serve the metrics during the scope, when a port is given. Raises OSError when it is taken."""
    if port is None:
        yield
        return
    from prometheus_client import start_http_server

    with naming(f"127.0.0.1:{port}"):
        server, thread = start_http_server(port, addr="127.0.0.1", registry=metrics.registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
