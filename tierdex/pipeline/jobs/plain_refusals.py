"""Refusals as the first line of Spark's error, without the traceback of the process that refuses.

Spark's Python processes send an exception with its traceback, unless their environment hides it. The process
ends with the exception, so what is set here is seen by nothing else.

Depends on errors.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

_HIDING: Final = "SPARK_HIDE_TRACEBACK"


def refusing_plainly(call: Callable[P, T]) -> Callable[P, T]:
    """Put an InvalidRequestError of a call into the first line that a user reads."""

    @wraps(call)
    def told(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(*arguments, **named)
        except InvalidRequestError:
            os.environ[_HIDING] = "1"
            raise

    return told
