"""The index files and topic numbers of a folder of RocketMQ's tiered store, in place and read-only.

Under the root are looked for::

    tiered_index_file/<begin>                                 local files, being written or ended
    tiered_index_file/compacting/<begin>                      compacted ones that await their upload
    [*/]<8 hex>_<cluster>/<broker>/rmq_sys_INDEX/0/INDEX/*    uploaded ones
    config/tieredStoreMetadata.json                           topic names and their numbers

Every file has to be searched: the times in the headers bound nothing (late entries lie before the begin,
the original restores the end wrongly), and walking one chain costs less than scanning a file for its
true bounds. A file that cannot be read is named with its reason, so that an answer without it is not
called complete. A folder in which neither place is there is refused: nothing could be found in it.

Depends on errors, file, layout and whole_file.
"""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.rocketmq.file import RocketmqIndexFile
from tierdex.whole_file import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.filesystem import FileSystem
    from tierdex.rocketmq.layout import Form

LOCAL_FOLDER = "tiered_index_file"
COMPACTED_FOLDER = "compacting"
UPLOADED_FOLDER = Path("rmq_sys_INDEX/0/INDEX")
METADATA = Path("config/tieredStoreMetadata.json")
_NO_INDEX = (
    f"holds no index of RocketMQ: neither {LOCAL_FOLDER} nor "
    f"<hash>_<cluster>/<broker>/{UPLOADED_FOLDER}"
)
_CLUSTER = re.compile(r"[0-9a-f]{8}_.+")
_TEXT_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])(\s*)(-?\d+)(?=\s*:)')


class UnreadableFile(NamedTuple):
    """A file that should have been asked and could not be."""

    file: str
    reason: str


class RocketmqFolder:
    """The index files of one broker's tiered store. Safe to share between threads."""

    def __init__(
        self,
        filesystem: FileSystem,
        root: Path,
        *,
        slot_capacity: int | None = None,
        item_capacity: int | None = None,
    ) -> None:
        """Open a folder; capacities are for its local files, and found out when not given.

        Raises NotFoundError when the folder is not there, or has no place of index files.
        """
        if not filesystem.is_folder(root):
            raise NotFoundError(f"there is no folder {root}")
        self.root = root
        self._filesystem = filesystem
        if not self._has_places():
            raise NotFoundError(f"{root} {_NO_INDEX}; {self._advice()}")
        self._capacities = {"slot_capacity": slot_capacity, "item_capacity": item_capacity}
        self._guard = threading.Lock()
        self._topics: tuple[tuple[int, int], dict[str, int]] | None = None
        self._open: dict[Path, tuple[tuple[int, int], RocketmqIndexFile]] = {}

    def topics(self) -> dict[str, int]:
        """Return each topic's number from the metadata; empty without metadata.

        Raises CorruptFileError when the metadata cannot be read as such.
        """
        path = self.root / METADATA
        if not self._filesystem.exists(path):
            return {}
        version = (self._filesystem.file_size(path), self._filesystem.modified_ms(path))
        known = self._topics
        if known and known[0] == version:
            return known[1]
        text = read_file(self._filesystem, path)
        try:
            table = _parse_loose_json(text.decode())["topicMetadataTable"]
            numbers = {str(topic): int(row["topicId"]) for topic, row in table.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(path, f"is not a table of topics: {error}") from error
        self._topics = (version, numbers)
        return numbers

    def files(self) -> tuple[list[RocketmqIndexFile], list[UnreadableFile]]:
        """Return the readable files, newest begin first, and the unreadable ones with reasons."""
        with self._guard:
            readable, unreadable = [], []
            if not self._has_places():
                unreadable.append(UnreadableFile(str(self.root), _NO_INDEX))
            paths = dict(self._paths())
            for path, form in paths.items():
                try:
                    readable.append(self._opened(path, form))
                except FileNotFoundError:
                    continue  # the broker removed it since the listing
                except (CorruptFileError, OSError) as error:
                    unreadable.append(
                        UnreadableFile(str(path), getattr(error, "reason", str(error)))
                    )
            for path in self._open.keys() - paths.keys():
                self._open.pop(path)  # closed by its last user: another thread may be in it
        readable.sort(key=lambda file: (file.begin_ms, file.path.name), reverse=True)
        return readable, unreadable

    # -- private ----------------------------------------------------------------------------------
    def _opened(self, path: Path, form: Form | None) -> RocketmqIndexFile:
        version = (self._filesystem.file_size(path), self._filesystem.modified_ms(path))
        known = self._open.get(path)
        # A local file keeps its length while it is written; one that ended or grew is opened anew.
        if known and known[0][0] == version[0] and (known[0] == version or form is None):
            return known[1]
        capacities = self._capacities if form is None else {}
        file = RocketmqIndexFile.open(self._filesystem, path, form=form, **capacities)
        self._open[path] = (version, file)
        return file

    def _paths(self) -> Iterator[tuple[Path, Form | None]]:
        """Yield every index file's path, and its form where the place says it."""
        local = self.root / LOCAL_FOLDER
        names = self._filesystem.list_folder(local)
        for name in names:
            if not self._filesystem.is_folder(local / name):
                yield local / name, None
        for name in self._filesystem.list_folder(local / COMPACTED_FOLDER):
            if name not in names:  # else its source is there, and this may be half written
                yield local / COMPACTED_FOLDER / name, "compacted"
        for folder in self._uploaded_folders():
            for name in self._filesystem.list_folder(folder):
                yield folder / name, "compacted"

    def _has_places(self) -> bool:
        """Return whether a place of index files is there, though it may have none yet.

        Local files one folder deeper would be left out beside uploaded ones, which are found there, too.
        """
        if self._filesystem.is_folder(self.root / LOCAL_FOLDER):
            return True
        has_uploaded = any(map(self._filesystem.is_folder, self._uploaded_folders()))
        return has_uploaded and self._deeper() is None

    def _deeper(self) -> Path | None:
        """Return the folder in this one that has local index files, None without one."""
        inside = (self.root / name for name in self._folders(self.root))
        return next((f for f in inside if self._filesystem.is_folder(f / LOCAL_FOLDER)), None)

    def _advice(self) -> str:
        """Return what to do about a folder without places: where they are, if that is near."""
        for place in self.root, *self.root.parents:
            if place.name == LOCAL_FOLDER:
                return f"give the folder above: {place.parent}"
            if _CLUSTER.fullmatch(place.name):
                return f"give the folder above: {place.parent}"
        if (deeper := self._deeper()) is not None:
            return f"give the folder in it: {deeper}"
        return (
            f"give the broker's storePathRootDir, or the root of its tiered store. Copied files belong in a "
            f"folder {LOCAL_FOLDER} in it, compacted ones in {LOCAL_FOLDER}/{COMPACTED_FOLDER}"
        )

    def _uploaded_folders(self) -> Iterator[Path]:
        above = [self.root / name for name in self._folders(self.root)]
        for cluster in [*above, *(top / name for top in above for name in self._folders(top))]:
            if _CLUSTER.fullmatch(cluster.name):
                for broker in self._folders(cluster):
                    yield cluster / broker / UPLOADED_FOLDER

    def _folders(self, path: Path) -> list[str]:
        names = self._filesystem.list_folder(path)
        return [name for name in names if self._filesystem.is_folder(path / name)]


def _parse_loose_json(text: str) -> Any:
    """Parse JSON in which numbers may stand as keys without quotes, as the original writes it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        quoted = _TEXT_OR_BARE_KEY.sub(
            lambda found: f'{found[1]}"{found[2]}"' if found[2] else found[0], text
        )
        return json.loads(quoted)
