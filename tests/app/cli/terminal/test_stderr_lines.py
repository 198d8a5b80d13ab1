"""The line on a terminal while kernels are compiled."""

from __future__ import annotations

import io
from functools import partial

from tierdex.app.cli.terminal.progress_bar import progress_bar
from tierdex.app.cli.terminal.stderr_lines import CompilingLine, on_terminal, show_compilations
from tierdex.compilation import compilations


def test_line_tells_how_many_and_how_long_and_leaves_nothing_behind():
    terminal = io.StringIO()
    line = CompilingLine(on_terminal(terminal))
    line.begun(6, 3.7)
    shown = terminal.getvalue().rpartition("\x1b[K")[2]
    assert shown == "compiling kernels, once: 7 in 4 s"
    line.ended(7, 4.0)
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_terminal_that_went_away_stops_no_compilation():
    terminal = io.StringIO()
    terminal.close()
    CompilingLine(on_terminal(terminal)).begun(0, 0.0)


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_bar_says_so_itself_instead_of_drawing_over_the_line(monkeypatch):
    bar, alone = _Terminal(), _Terminal()
    monkeypatch.setattr("sys.stderr", bar)
    monkeypatch.setattr(compilations, "watchers", [CompilingLine(on_terminal(alone))])
    with progress_bar("loading"):
        (watcher,) = compilations.watchers
        watcher.begun(6, 3.7)
    assert "compiling kernels, once: 7 in 4 s" in bar.getvalue()
    assert alone.getvalue() == ""
    (watcher,) = compilations.watchers
    watcher.begun(7, 3.7)
    assert alone.getvalue() != ""


def test_it_is_shown_on_terminals_only(monkeypatch):
    for is_terminal in (False, True):
        terminal = io.StringIO()
        terminal.isatty = partial(bool, is_terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setattr(compilations, "watchers", [])
        show_compilations()
        assert len(compilations.watchers) == is_terminal
