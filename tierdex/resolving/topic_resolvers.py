"""The resolver and the decoding of each topic: from `resolvers.toml`, the log, the followers.

::

    resolvers.toml names the topic's source     --> that
    the folder has a message log                --> the log
    the topic follows a lake's table            --> the table
    the topic was followed (following.json)     --> the log that it was followed from
    else                                        --> `others`: loaded files; none

The file is read again when it has changed, once it has been the same for a second: half a file is never read.
One that cannot be, and one that is gone, change nothing: masks would fall.

Depends on errors, index_service, seams, following and the other modules of this folder.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.following.open_source import open_source
from tierdex.following.sources.options import Address, read_options
from tierdex.index_service.tables.followed_tables import FollowedTables
from tierdex.resolving.decoding import Decoder
from tierdex.resolving.file_rows import FileRows, below, one_file
from tierdex.resolving.followed_log import FollowedLog
from tierdex.resolving.followed_rules import FollowedRules
from tierdex.resolving.own_log import OwnLog
from tierdex.resolving.resolver_file import (
    FILE_NAME,
    TopicPlan,
    options_of,
    read_resolver_file,
)
from tierdex.resolving.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.following.positions import FollowedSource
    from tierdex.resolving.registry import Registry
    from tierdex.resolving.resolver import Resolver
    from tierdex.resolving.resolver_file import ResolverFile, Showing
    from tierdex.resolving.schemas import Schemas
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)
_LOOK_S: Final = 1.0


class TopicResolvers:
    """The resolvers and decoders of a service or a folder. Safe to share between threads.

    It owns the resolvers that it makes, not the log and `others`.
    """

    def __init__(
        self,
        path: Path | None,
        data: Path | None,
        log: Any,
        others: Resolver | None,
        seams: Seams,
        tables: FollowedTables | None = None,
    ) -> None:
        """Read the file at `path`, or that of the data folder. Raises InvalidRequestError, OSError.

        `tables` are those of a store; None: those of the data folder.
        """
        if path is not None and not seams.filesystem.exists(path):
            raise InvalidRequestError(f"there is no file {path}", field="resolvers")
        path = path or (None if data is None else data / FILE_NAME)
        self._seams = seams
        self._path = path or Path(FILE_NAME)
        self._folder = Path() if path is None else path.parent
        self._stamp = self._seen = self._stamp_now()
        self._looked = seams.clock.monotonic()
        self._file = self._read()
        self.followed = FollowedRules(seams.filesystem, data, seams.clock)
        self._tables = tables or FollowedTables(seams.filesystem, data)
        self._tables_looked = float("-inf")
        self._own = None if log is None else OwnLog(log)
        self._others = others
        self._lock = threading.Lock()
        self._made: dict[tuple[str, Any], Resolver] = {}
        self._retired: list[Resolver | Registry] = []  # of a file before: some caller may have one
        self._decoders: dict[tuple[str, bool], Decoder] = {}
        self._registries: dict[str, Registry] = {}

    def resolver(self, topic: str) -> Resolver:
        """Return the topic's resolver.

        Raises NotFoundError when there is none, InvalidRequestError for one that cannot be made.
        """
        plan = self._current().topics.get(topic)
        if plan is not None and plan.source is not None:
            return self._make(topic, plan)
        if self._own is not None:
            return self._own
        self._look_at_tables()
        if topic in self._tables.topics:
            return self._make(topic, None)
        followed = self.followed.source_of(topic)
        if followed is not None:
            return self._make(topic, followed)
        if self._others is not None:
            return self._others
        raise NotFoundError(f"no resolver is configured for topic {topic!r}: see {FILE_NAME}")

    def decoder(self, topic: str, resolver: Resolver) -> Decoder:
        """Return how bodies of the topic are read. Raises InvalidRequestError."""
        repeats = isinstance(resolver, FollowedLog) and not resolver.shows_headers
        self._current()
        with self._lock:
            known = self._decoders.get((topic, repeats))
            if known is None:
                showing = self._file.showing(topic)
                if repeats:  # a field that is masked as a header stands in the value as well
                    fields = [each.partition(":") for each in showing.mask]
                    more = [f"$['{field}']" for kind, _, field in fields if kind == "header"]
                    showing = showing.model_copy(update={"mask": [*showing.mask, *more]})
                known = Decoder(showing, self._schemas(showing))
                self._decoders[(topic, repeats)] = known
            return known

    def has_masks(self, topic: str) -> bool:
        """Return whether parts of the topic's messages are masked."""
        return bool(self._current().showing(topic).mask)

    def close(self) -> None:
        """Close what was made here."""
        with self._lock:
            self._retire()
            retired, self._retired = self._retired, []
            for each in retired:
                each.close()

    # -- the file ------------------------------------------------------------------------------------

    def _current(self) -> ResolverFile:
        """Return the file, as it is now or was when it was last seen whole."""
        now = self._seams.clock.monotonic()
        with self._lock:
            if now - self._looked < _LOOK_S:
                return self._file
            self._looked = now
            before, self._seen = self._seen, self._stamp_now()
            if self._seen in (None, self._stamp) or self._seen != before:
                return self._file
            self._stamp = self._seen  # what cannot be is said once
            try:
                self._file = self._read()
            except (InvalidRequestError, OSError) as error:
                logger.error("resolvers stay as they were", extra={"error": str(error)})
                return self._file
            self._retire()
            logger.info("resolvers were read again", extra={"path": str(self._path)})
            return self._file

    def _retire(self) -> None:
        self._retired += [*self._made.values(), *self._registries.values()]
        self._made, self._registries, self._decoders = {}, {}, {}

    def _read(self) -> ResolverFile:
        found = read_resolver_file(self._seams.filesystem, self._path)
        for topic, plan in found.topics.items():
            if plan.source is not None:
                _check_address(f"topics.{topic}.source", plan.source)
        return found

    def _stamp_now(self) -> tuple[int, int] | None:
        filesystem = self._seams.filesystem
        if not filesystem.exists(self._path):
            return None
        return filesystem.modified_ms(self._path), filesystem.file_size(self._path)

    # -- what it says --------------------------------------------------------------------------------

    def _look_at_tables(self) -> None:
        """Read what tables are followed, as `followed` does for logs: once a second."""
        now = self._seams.clock.monotonic()
        if now - self._tables_looked >= _LOOK_S:
            self._tables_looked = now
            self._tables.refresh()

    def _make(self, topic: str, plan: TopicPlan | FollowedSource | None) -> Resolver:
        key = (topic, repr(plan))
        with self._lock:
            if key not in self._made:
                self._made[key] = self._made_of(topic, plan)
            return self._made[key]

    def _made_of(self, topic: str, plan: TopicPlan | FollowedSource | None) -> Resolver:
        filesystem = self._seams.filesystem
        if plan is None:
            from tierdex.resolving.table_row import TableRows

            return TableRows(filesystem, self._tables, topic)
        rule = Rule.parse(plan.keys, plan.message_id)
        text = plan.source
        assert text is not None
        kind, _, rest = text.partition(":")
        if kind in ("file", "files"):
            address_of = one_file(rest) if kind == "file" else below(rest)
            return FileRows(filesystem, rest.partition("?")[0], address_of, rule)
        options: Mapping[str, str] = plan.options
        if isinstance(plan, TopicPlan):
            options = options_of(filesystem, self._folder, plan)
        elif plan.has_secrets:
            raise InvalidRequestError(
                f"its log needs a login: give the topic's source in {FILE_NAME}", field=topic
            )
        address = Address.parse(text, options)
        repeats = address.kind == "folder" or (
            address.kind.startswith("redis") and not address.options.get("value")
        )
        return FollowedLog(
            lambda: open_source(text, options, self._seams), address.shown, rule,
            shows_headers=not repeats, memory=lambda: self.followed.memory(topic),
        )  # fmt: skip

    def _schemas(self, showing: Showing) -> Schemas | None:
        if showing.registry is None:
            return None
        from tierdex.resolving.registry import Registry
        from tierdex.resolving.schemas import Schemas

        url, config = showing.registry, showing.registry_config
        if url not in self._registries:
            filesystem = self._seams.filesystem
            said = {} if config is None else read_options(filesystem, self._folder / config)
            self._registries[url] = Registry(url, said, self._seams.clock)
        return Schemas(self._registries[url])


def _check_address(field: str, text: str) -> None:
    kind, colon, rest = text.partition(":")
    if kind in ("file", "files"):
        if not colon or not rest:
            raise InvalidRequestError("names no file: file:PATH, files:FOLDER", field=field)
        return
    try:
        Address.parse(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.detail, field=field) from None
