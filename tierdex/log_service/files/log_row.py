"""The manifest row of a log file: what a reader knows without a request.

`schema` says, as JSON, what the row of an index file has no word for: the generation, where the journal's
batches end, the sizes by which a merge is planned, and which file came before. Depends on fileparts,
lifecycle and errors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import CorruptFileError
from tierdex.fileparts.predecessor import Predecessor

if TYPE_CHECKING:
    from tierdex.lifecycle.manifests.file_row import FileRow


class FileSizes(NamedTuple):
    """How much a grouped file holds, as the plan of a merge needs to know it."""

    queue_count: int
    payload_bytes: int  # of its pages before they were compressed
    body_bytes: int


class LogRowMore(NamedTuple):
    """What `schema` says of a log file."""

    generation: int
    end: Predecessor
    sizes: FileSizes
    follows: bytes | None = None  # last journal of the file published before; None: not known

    def encode(self) -> str:
        uuid, count, crc = self.end
        more: dict[str, object] = {
            "generation": self.generation, "end": [uuid.hex(), count, crc], "sizes": self.sizes,
        }  # fmt: skip
        if self.follows is not None:
            more["follows"] = self.follows.hex()
        return json.dumps(more, separators=(",", ":"))

    @classmethod
    def of(cls, row: FileRow) -> LogRowMore:
        """Return what a row says. Raises CorruptFileError."""
        try:
            found = json.loads(row.schema)
            uuid, count, crc = found["end"]
            end = Predecessor(bytes.fromhex(uuid), int(count), int(crc))
            sizes, follows = FileSizes(*map(int, found["sizes"])), found.get("follows")
            return cls(
                int(found["generation"]),
                end,
                sizes,
                None if follows is None else bytes.fromhex(follows),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(
                row.object_key, f"its row is not one of a log file: {error}"
            ) from error
