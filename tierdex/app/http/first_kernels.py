"""`FirstKernels`: loads, or compiles, what a first put and a first lookup call before the service is ready.

With a cold cache the kernels take half a minute of CPU, and a client's first put would time out. They come
in the order in which requests want them: a put and a lookup of a small index (an append and a get of a
small log) in a folder of its own, then lookups in compacted files. Requests are answered meanwhile, but
`/readyz` says no.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tierdex.app.logs import QUIET_THREAD
from tierdex.compilation import compilations
from tierdex.errors import UnavailableError
from tierdex.fileparts.kernels.built import BUILT
from tierdex.index_service.health import NotReady

if TYPE_CHECKING:
    from tierdex.index_service.index import Index
    from tierdex.log_service.message_log import MessageLog

_LOGGER = logging.getLogger("tierdex.kernels")
_SMALL: Final[dict[str, Any]] = {
    "slot_count": 1024, "item_capacity": 4096, "disk_reserve_bytes": 0, "background": False, "node": "warm",
}  # fmt: skip
_SMALL_LOG: Final[dict[str, Any]] = {
    **_SMALL, "journal_bytes": 1 << 20, "max_message_bytes": 64 << 10,
}  # fmt: skip
_PLACE: Final[dict[str, Any]] = {"topic": "t", "queue_id": 0, "size": 1, "timestamp": 1}


class FirstKernels:
    """The kernels of a service that writes an index, or a log, or only reads. Started once."""

    def __init__(self, *, writes_index: bool, writes_log: bool) -> None:
        self._writes_index = writes_index
        self._writes_log = writes_log
        self._are_there = threading.Event()

    def start(self) -> None:
        """Load them in a thread of their own."""
        threading.Thread(target=self.load, name=QUIET_THREAD, daemon=True).start()

    def health(self) -> list[NotReady]:
        """Return one reason until the kernels are there."""
        if self._are_there.is_set():
            return []
        detail = "the kernels of puts and lookups are being loaded; without a cache they are compiled once"
        return [NotReady("loading-kernels", f"{detail} ({compilations.count} so far)")]

    def load(self) -> None:
        """Load, or compile, what the first requests call; then the kernels of published files."""
        if BUILT is not None:  # they came with the package
            self._are_there.set()
            return
        from tierdex.app.http.codecs import row_text
        from tierdex.index_service.warm_up import warm_up

        writes = self._writes_index or self._writes_log
        try:
            if writes:
                with tempfile.TemporaryDirectory(
                    prefix="tierdex-warm-up-",
                    ignore_cleanup_errors=True,  # of a service that ends while it loads
                ) as folder:
                    (_use_log if self._writes_log else _use_index)(Path(folder))
            row_text.warm_up()
            if not writes:
                warm_up()  # a reader has no other files
        except (OSError, UnavailableError) as error:
            # No folder can be written, or its disk is full: the first requests load what they call.
            _LOGGER.warning("kernels are not loaded ahead", extra={"error": str(error)})
        finally:
            self._are_there.set()
        if writes:
            warm_up()
        threading.current_thread().name = "tierdex-kernels"
        if compilations.count:
            done = {"kernels": compilations.count, "seconds": round(compilations.seconds, 1)}
            _LOGGER.info("compiled kernels", extra=done)


def _use_index(folder: Path) -> None:
    from tierdex.index_service.index import Index

    with Index.open(folder / "index", **_SMALL) as index:
        _put_and_ask(index)


def _put_and_ask(index: Index) -> None:
    for durability in ("os", "disk", "received"):
        index.put(**_PLACE, keys=["a", "b"], message_id="m", offset=1, durability=durability)
    index.put(**_PLACE, key="a", offset=2)
    index.put_batch(**_PLACE, keys=["a", "b"], offset=[1, 2])
    several = {**_PLACE, "topic": ["t", "u"], "keys": [["a", "b"], ["c"]]}
    index.put_batch(**several, message_id=["m", None], offset=[3, 4])
    _ask(index)


def _ask(index: Index) -> None:
    for asked in ({"key": "a"}, {"key": "a", "begin": 0, "end": 9}):
        page = index.query("t", **asked, max_count=1, explain=True)
        index.query("t", **asked, max_count=1, cursor=page.next_cursor)
    index.query(message_id="m")
    index.query_batch([{"topic": "t", "key": "a"}, {"topic": "t", "key": "none"}])


def _use_log(folder: Path) -> None:
    from tierdex.log_service.message_log import MessageLog

    with MessageLog.open(folder / "log", **_SMALL_LOG) as log:
        for durability in ("os", "disk", "received"):
            log.append(topic="t", queue_id=0, body=b"body", keys=["a", "b"], durability=durability)
        log.append(topic="t", queue_id=0, body=b"body", key="a", message_id="m")
        log.append_batch(topic="t", queue_id=0, body=[b"1", b"2"], keys=["a", "b"])
        _read(log)


def _read(log: MessageLog) -> None:
    log.get("t", key="a")
    log.read("t", 0, 0)
    log.catch_up()
    _ask(log.index)
