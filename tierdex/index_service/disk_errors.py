"""What a failed system call means for the caller: the one place where `OSError` becomes ours.

Below `Index` errors of the disk are plain `OSError`, so that each layer may handle those it expects
(a file that moved on, a copy that can be fetched again). What none of them handled leaves `Index` as
UnavailableError, with the path and what to do: nothing was acknowledged, the same call may succeed
once the disk is well again.

Depends on errors only.
"""

from __future__ import annotations

import errno
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from tierdex.errors import BacklogFullError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    errno.EROFS: "the file system is mounted read-only: mount it for writing",
}


def disk_error(error: OSError) -> UnavailableError:
    """Return the typed error for a system call that failed."""
    if error.errno in _FULL_DISK:
        return BacklogFullError(
            f"the disk is full: {error}; free some space", retry_after_s=RETRY_AFTER_S
        )
    advice = _ADVICE.get(error.errno or 0, "look after the disk (see the kernel's log), try again")
    return UnavailableError(f"{error}; {advice}", retry_after_s=RETRY_AFTER_S)


def is_of_the_disk(error: BaseException | None) -> bool:
    """Say whether a system call failed: not a TimeoutError that a caller's signal handler raised."""
    return isinstance(error, OSError) and not (
        isinstance(error, TimeoutError) and error.errno is None
    )


def with_disk_errors(call: Callable[P, T]) -> Callable[P, T]:
    """Let a public call raise typed errors only."""

    @wraps(call)
    def typed(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(*arguments, **named)
        except OSError as error:
            if not is_of_the_disk(error):
                raise
            raise disk_error(error) from error

    return typed
