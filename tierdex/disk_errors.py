"""Failed system calls as typed errors: the one place that turns an `OSError` into a TierdexError.

Below `Index` and `MessageLog` an error of the disk is a plain `OSError`, so that each layer can handle
those it expects (a file that was renamed, a copy that can be fetched again). Their public calls raise the
others as UnavailableError, which names the path and the remedy. Nothing was acknowledged, and the same
call may succeed once the disk works again. A text of the caller's that cannot be encoded, which holds one
half of a surrogate pair, is an InvalidRequestError there, wherever it was met.

Depends on errors only.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from tierdex.errors import BacklogFullError, InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

RETRY_AFTER_S: Final = 5.0
_FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ADVICE: Final = {
    errno.EMFILE: "the process has too many files open: raise its limit (`ulimit -n`)",
    errno.ENFILE: "the machine has too many files open: raise `fs.file-max`",
    errno.ENOMEM: "memory or mappings are short: free memory, or raise `vm.max_map_count`",
    errno.EACCES: "give the process the right to it",
    errno.EPERM: "give the process the right to it",
    errno.ENOENT: "make it, or name another one",
    errno.EEXIST: "it is no folder: name another one",
    errno.ENOTDIR: "it is no folder: name another one",
    errno.EISDIR: "it is a folder: name a file",
    errno.EADDRINUSE: "another process listens there: choose another port",
    errno.EADDRNOTAVAIL: "this machine does not have that address: choose another",
    errno.EROFS: "the file system is mounted read-only: mount it for writing",
}


def advice_for(error: OSError) -> str | None:
    """Return what to do about a failed system call; None: nothing is known."""
    return _ADVICE.get(error.errno or 0)


def disk_error(error: OSError) -> UnavailableError:
    """Return the typed error for a system call that failed."""
    if error.errno in _FULL_DISK:
        return BacklogFullError(
            f"the disk is full: {error}; free some space", retry_after_s=RETRY_AFTER_S
        )
    advice = advice_for(error) or "look after the disk (see the kernel's log), try again"
    return UnavailableError(f"{error}; {advice}", retry_after_s=RETRY_AFTER_S)


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Add a path to the error of a failed system call that names none, as writes to open files do."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(place)
        raise


def raise_typed(error: BaseException | None) -> None:
    """Raise the typed error in place of a failed system call; return for everything else.

    A TimeoutError without a number is no failed system call: a caller's signal handler raised it.
    """
    if isinstance(error, UnicodeEncodeError):
        raise InvalidRequestError(
            f"{error.object!a} is no text: it holds one half of a surrogate pair"
        ) from error
    if isinstance(error, OSError) and not (isinstance(error, TimeoutError) and error.errno is None):
        raise disk_error(error) from error


class _TypedDiskErrors:
    """A block of a public call, which raises typed errors only."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        raise_typed(error)


typed_disk_errors: Final = _TypedDiskErrors()


def with_disk_errors(call: Callable[P, T]) -> Callable[P, T]:
    """Make a public call raise typed errors only."""

    @wraps(call)
    def typed(*arguments: P.args, **named: P.kwargs) -> T:
        with typed_disk_errors:
            return call(*arguments, **named)

    return typed
