"""What the doors need of an index: the verbs of `tierdex.Index` that HTTP and the command line call.

The service is written against this protocol, so that a test can stand a small index in its place
and a remote client can stand where an embedded index does. Times are int64 milliseconds, both ends
inclusive; `durability` is one of `received`, `os`, `disk`, `remote`.

Depends on the answer's and health's classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.index_service.answer import Answer
    from tierdex.index_service.file_info import NodeInfo
    from tierdex.index_service.health import NotReady

Durability = Literal["received", "os", "disk", "remote"]
DURABILITIES: tuple[Durability, ...] = ("received", "os", "disk", "remote")


class QueryPort(Protocol):
    """The verbs that only read."""

    def query(
        self,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        begin: int | None = None,
        end: int | None = None,
        max_count: int = 64,
        cursor: str | None = None,
        explain: bool = False,
        on_error: str = "partial",
    ) -> Answer: ...

    def query_batch(
        self, lookups: list[dict[str, Any]], *, on_error: str = "partial"
    ) -> list[Answer]: ...

    def query_batch_arrow(self, lookups: Any, *, max_count: int = 1, on_error: str = "fail") -> Any:
        """Take a table of lookups, return a table of entries with a column `lookup` (row number)."""
        ...

    def topics(self) -> list[str]: ...
    def watermark(self, topic: str, queue_id: int) -> dict[str, int | None]: ...
    def files(self) -> Iterable[Any]: ...
    def nodes(self) -> list[NodeInfo]: ...
    def file(self, file_id: str) -> Any: ...
    def verify_file(self, file_id: str) -> list[str]: ...
    def compaction_status(self) -> dict[str, Any]: ...


class IndexPort(QueryPort, Protocol):
    """An index in this process, open for reading and writing."""

    def query_local(
        self,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        begin: int | None = None,
        end: int | None = None,
        max_count: int = 64,
        cursor: str | None = None,
        explain: bool = False,
        on_error: str = "partial",
    ) -> Answer | None:
        """Return what `query` would, if memory alone tells it at once; else None."""
        ...

    def query_batch_local(self, lookups: Any, *, max_count: int = 1) -> Any | None:
        """Return what `query_batch_arrow` would, if memory alone tells it at once; else None."""
        ...

    def put(
        self,
        *,
        topic: str,
        keys: Iterable[str] | None = None,
        message_id: str | None = None,
        queue_id: int,
        offset: int,
        size: int,
        timestamp: int,
        durability: str = "received",
    ) -> str: ...

    def put_batch(
        self,
        *,
        topic: Any,
        keys: Any = None,
        message_id: Any = None,
        queue_id: Any,
        offset: Any,
        size: Any,
        timestamp: Any,
        durability: str = "os",
    ) -> str:
        """Put columns of one length, all or nothing; return the level reached."""
        ...

    def flush(self, durability: str = "os") -> str: ...
    def roll(self) -> bool: ...
    def run_compaction(self) -> int: ...
    def health(self) -> list[NotReady]: ...
    def refresh(self) -> None: ...
    def expire(self, *, before: int, dry_run: bool = False) -> list[Any]: ...
    def close(self) -> None: ...
