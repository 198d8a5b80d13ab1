"""How lookups of one topic, or of message IDs, are answered in one version of the file table.

::

    newest first:   local | local | local | published | published | local | ...
                    `-----. .-----´    `---- one by one ----´        `- a run, too
                       a run: one call of a finder

Depends on memory_files, answer, indexfile and lifecycle.
"""

from __future__ import annotations

from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.index_service.answer import Entry
from tierdex.indexfile.hashing import seeded_hash
from tierdex.indexfile.layout import TAG_NONE
from tierdex.indexfile.message_finder import MessageFinder, tag_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tierdex.index_service.query.memory_files import MemoryFile, MemoryFiles
    from tierdex.lifecycle.table.file_handle import FileHandle


class Run:
    """Local files that follow each other, and the finder of those that know the topic.

    A file that may learn the topic, and did not know it when this was made, is one of the `newcomers`: each
    file is asked once, or one that learns it in between would be in neither list.
    """

    __slots__ = ("finder", "newcomers", "readers", "sources")

    def __init__(
        self, files: Iterable[MemoryFile], topic: str | None, seed: int, most_bytes: int
    ) -> None:
        known, newcomers = [], []
        for source in files:
            if source.may_learn or source.local.item_count:
                if tag_in(source.local, topic) != TAG_NONE:
                    known.append(source)
                elif source.may_learn:
                    newcomers.append(source.local)
        self.newcomers = newcomers
        self.sources = tuple(known)
        self.readers = tuple(source.local for source in known)
        self.finder = MessageFinder(
            [(source.local, source.tail) for source in known], topic, seed,
            kind=Entry, most_bytes=most_bytes,
        )  # fmt: skip


class Shown(NamedTuple):
    """The files that show a topic until `until_s`, by these rules of retention."""

    sources: Sequence[MemoryFile]
    until_s: float
    rules: object

    @classmethod
    def of(
        cls,
        topic: str | None,
        files: MemoryFiles,
        rules: object,
        hidden_from: Callable[[FileHandle, str], int | None],
        now_s: float,
    ) -> Shown | None:
        """Look at each file; None: message IDs of any topic would have to be looked at one by one."""
        if not rules:
            return cls(files.sources, inf, rules)
        if topic is None:
            return None
        shown, until_s = [], inf
        for source in files.sources:
            since = hidden_from(source.handle, topic)
            since_s = inf if since is None else since / 1000
            if since_s > now_s:
                shown.append(source)
                until_s = min(until_s, since_s)
        return cls(shown, until_s, rules)


class MemoryPlan:
    """The newest files in runs of local ones, and published ones between and behind them.

    `topic` is None for message IDs. Never changed: what one thread asks is of one version. Files in which
    retention hides the topic are left out; from `until_s` on there are more of them.
    """

    __slots__ = (
        "end",
        "files",
        "find",
        "first",
        "newcomers",
        "places",
        "rules",
        "seed",
        "steps",
        "tells",
        "topic",
        "until_s",
    )

    def __init__(
        self,
        topic: str | None,
        seed: int,
        files: MemoryFiles,
        max_key_bytes: int,
        shown: Shown,
    ) -> None:
        self.rules, self.until_s = shown.rules, shown.until_s
        self.topic = topic
        self.seed = seed
        self.files = files
        steps: list[Run | MemoryFile] = []
        for is_local, group in groupby(shown.sources, lambda source: source.local is not None):
            some = list(group)
            steps += [Run(some, topic, seed, max_key_bytes)] if is_local else some
        first = steps[0] if steps else None
        if not isinstance(first, Run):
            first = Run([], topic, seed, max_key_bytes)  # the kernel looks at the name
            steps.insert(0, first)
        self.newcomers = tuple(
            file for run in steps if isinstance(run, Run) for file in run.newcomers
        )
        self.first = first
        self.steps = tuple(steps)
        self.find = first.finder.find
        # Where the search of the first run ends that is complete: nowhere, if others are to be asked.
        is_all = len(steps) == 1 and files.beyond is None
        self.end = first.finder.count if is_all else -1
        self.tells = int(not is_all)  # where each entry lies: others may follow
        # Of each local file its step, and its number there.
        self.places = {
            source.tail[0]: (step, number)
            for step, run in enumerate(steps)
            if isinstance(run, Run)
            for number, source in enumerate(run.sources)
        }

    def is_behind(self) -> bool:
        """Say whether a file has learned the topic since this was made."""
        return any(tag_in(file, self.topic) != TAG_NONE for file in self.newcomers)

    def hash_of(self, name: Any) -> int:
        """Return the hash of a name that a finder took."""
        return seeded_hash(str.__str__(name), self.seed)
