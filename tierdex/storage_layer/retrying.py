"""Repeats requests that failed with StoreUnavailableError or StoreTimeoutError, and no others.

All retries of the storage layer happen here and none in the S3 client, which makes one attempt: so
waits go through the clock and jitter through the ids, every attempt passes the counter and the
fault injector, `close` ends a wait, and the rules are the same for every backend.

Every verb may be repeated: reads change nothing, `delete` and `put` end in the same state, and
`put_if_absent` recognises the bytes of its own earlier attempt. A listing continues after the last
key that it yielded.

Pauses: full jitter below ``0.1 s * 2^attempt``, at most 5 s, and at least the pause that the store
asks.

Depends on base, clock, ids and tenacity.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, TypeVar

import tenacity

from tierdex.clock import Bell
from tierdex.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.storage_layer.base import Names, Store, StoredObject, UploadSource

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
LONGEST_ASKED_PAUSE_S = 30.0  # a Retry-After beyond this is left to the caller's own schedule
DEFAULT_RETRY_AFTER_S = 1.0  # of errors when the store asked for no pause

T = TypeVar("T")


class RetryPolicy:
    """The number of attempts and the pauses between them. Safe to share between threads."""

    def __init__(self, attempts: int, *, clock: Clock, ids: IdSource) -> None:
        assert attempts >= 1, attempts
        self._clock = clock
        self._ids = ids
        self._closed = Bell()
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(StoreUnavailableError),
            stop=lambda state: state.attempt_number >= attempts or self._closed.is_set(),
            wait=self._pause,
            sleep=self._sleep,
            before_sleep=_log_retry,
            reraise=True,
        )

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Return `function(*args)`; raises the error of the last attempt."""
        try:
            return self._retrying(function, *args)
        except Exception as error:
            # tenacity keeps the error in a frame of the error's own traceback. This cycle keeps the
            # callers' frames and their files alive until a garbage collection, which then frees
            # hundreds of megabytes in the middle of a put.
            traceback.clear_frames(error.__traceback__)
            raise

    def close(self) -> None:
        """End all waits: attempts that fail from now on are not repeated."""
        self._closed.set()

    def _pause(self, state: tenacity.RetryCallState) -> float:
        ceiling = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**state.attempt_number)
        pause: float = ceiling * self._ids.random()
        error = state.outcome.exception() if state.outcome else None
        asked = getattr(error, "retry_after_s", DEFAULT_RETRY_AFTER_S)
        if asked > DEFAULT_RETRY_AFTER_S:
            pause = max(pause, min(asked, LONGEST_ASKED_PAUSE_S))
        return pause

    def _sleep(self, seconds: float) -> None:
        self._clock.wait(self._closed, seconds)


class RetryingStore:
    """A store that repeats attempts by `policy`. Owns `inner` and the policy (closes both)."""

    def __init__(self, inner: Store, policy: RetryPolicy) -> None:
        self._inner = inner
        self._policy = policy

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        return self._policy.call(self._inner.get, key, position, length)

    def put(self, key: str, data: Buffer) -> None:
        self._policy.call(self._inner.put, key, data)

    def put_if_absent(self, key: str, data: Buffer) -> None:
        self._policy.call(self._inner.put_if_absent, key, data)

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        self._policy.call(self._inner.upload, key, source, length)

    def delete(self, key: str) -> None:
        self._policy.call(self._inner.delete, key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        listing: Iterator[StoredObject] | None = None

        def take() -> StoredObject | None:
            nonlocal listing
            try:
                if listing is None:
                    listing = iter(self._inner.list(prefix, start_after))
                return next(listing, None)
            except StoreUnavailableError:
                listing = None  # a broken iterator has ended: begin another
                raise

        while (entry := self._policy.call(take)) is not None:
            start_after = entry.key  # another listing begins here
            yield entry

    def list_folders(self, prefix: str) -> Names:
        return self._policy.call(self._inner.list_folders, prefix)

    def head(self, key: str) -> StoredObject:
        return self._policy.call(self._inner.head, key)

    def time_ms(self) -> int | None:
        return self._policy.call(self._inner.time_ms)

    def close(self) -> None:
        self._policy.close()
        self._inner.close()


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    logger.debug(
        "store request failed and is tried again attempt=%d error=%s", state.attempt_number, error
    )
