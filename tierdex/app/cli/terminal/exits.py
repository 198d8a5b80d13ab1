"""How a command ends: its exit code, and its error as one line on stderr.

Depends on typer, disk_errors and errors.
"""

from __future__ import annotations

import gc
from enum import IntEnum
from functools import wraps
from inspect import cleandoc
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import typer

from tierdex.disk_errors import disk_error
from tierdex.errors import (
    FolderInUseError,
    IncompleteAnswerError,
    InvalidRequestError,
    TierdexError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.index_service.file_info import NodeInfo

P = ParamSpec("P")
T = TypeVar("T")


class Exit(IntEnum):
    """Exit codes."""

    FOUND = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    INCOMPLETE = 4
    INTERRUPTED = 130


def reporting(command: Callable[P, T], *, is_brief: bool = False) -> Callable[P, T]:
    """Turn a TierdexError into one line on stderr and an exit code; a fault keeps its traceback.

    Its help is the docstring, the lines of a paragraph joined: a terminal has a width of its own. Enables
    the cyclic garbage collector, which `main` disables, unless the command `is_brief`.
    """

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        if not is_brief:
            gc.enable()
        try:
            return command(*arguments, **options)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except InvalidRequestError as error:
            say(f"error: {error}")
            raise typer.Exit(Exit.USAGE) from None
        except IncompleteAnswerError as error:
            say(f"error: {error}")
            raise typer.Exit(Exit.INCOMPLETE) from None
        except BrokenPipeError:
            raise  # see main
        except OSError as error:
            say(f"error: {disk_error(error)}")
            raise typer.Exit(Exit.ERROR) from None
        except TierdexError as error:
            say(f"error: {error}")
            if isinstance(error, FolderInUseError):
                say(
                    "hint: the process that holds the folder can do this; if it serves HTTP, use --url"
                )
            raise typer.Exit(Exit.ERROR) from None

    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    run.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    return run


def tell_unread(nodes: Iterable[NodeInfo]) -> bool:
    """Name on stderr the nodes that could not be read; return whether there is any."""
    problems = [(node.node, node.problem) for node in nodes if node.problem is not None]
    for name, problem in problems:
        say(f"incomplete: {f'node {name} cannot be read: ' if name else ''}{problem}")
    return bool(problems)


def say(text: str) -> None:
    """Write a line to stderr, apart from the output."""
    typer.echo(text, err=True)
