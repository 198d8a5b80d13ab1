"""The states of an index file, and the transitions between them.

The value of a state is the name of a folder: after a crash the folder of a file tells its state. A
file begins unsealed (the writer), compacted (a local merge) or uploaded (a Spark job, a node read
from the store). From then on it follows only the edges below, each taken by exactly one actor. A
state never follows itself: a step that is tried again first checks whether it was done.

`docs/lifecycle.md` embeds `mermaid()`.

Depends on errors only.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tierdex.errors import IllegalTransitionError


class FileState(Enum):
    """The state of an index file. On disk as folder names: never rename."""

    UNSEALED = "unsealed"
    SEALED = "sealed"
    COMPACTED = "compacted"
    UPLOADED = "uploaded"
    EXPIRED = "expired"

    @property
    def folder(self) -> str:
        """Return the folder's name; an expired file lies in no folder."""
        return self.value

    @property
    def age(self) -> int:
        """Return how far in its life the state is, from 0: of two copies the older one is later."""
        return _ORDER.index(self)


_ORDER: Final = tuple(FileState)

# Who takes each edge, and what is durable before it is taken.
TRANSITIONS: Final[dict[FileState, dict[FileState, str]]] = {
    FileState.UNSEALED: {FileState.SEALED: "writer rolls: footer synced, then one rename"},
    FileState.SEALED: {
        FileState.COMPACTED: "compactor: runs written, synced, verified, swapped in"
    },
    FileState.COMPACTED: {
        FileState.UPLOADED: "compactor: object uploaded, manifest commit lists it",
        FileState.EXPIRED: "retention, in an index without a store",
    },
    FileState.UPLOADED: {FileState.EXPIRED: "retention or merge: manifest commit drops it"},
    FileState.EXPIRED: {},
}

# The transitions that only recovery may undo: a compacted copy that does not verify is removed,
# and the sealed one that still lies beside it counts again.
RECOVERY_MAY_UNDO: Final[dict[FileState, dict[FileState, str]]] = {
    FileState.SEALED: {FileState.UNSEALED: "recovery: the sealed copy does not verify"},
    FileState.COMPACTED: {FileState.SEALED: "recovery: the compacted copy does not verify"},
}


def check_transition(source: FileState, target: FileState, *, in_recovery: bool = False) -> None:
    """Raise IllegalTransitionError unless the table joins the two states in this direction."""
    if target in TRANSITIONS[source]:
        return
    if in_recovery and target in RECOVERY_MAY_UNDO.get(source, {}):
        return
    raise IllegalTransitionError(f"{source.value} -> {target.value} is not in the table")


def mermaid() -> str:
    """Return the diagram of both tables as a mermaid `stateDiagram-v2`."""
    lines = ["stateDiagram-v2", "    [*] --> unsealed: writer"]
    lines += ["    [*] --> uploaded: another node, a Spark job"]
    for table in (TRANSITIONS, RECOVERY_MAY_UNDO):
        for source, targets in table.items():
            for target, reason in targets.items():
                lines.append(f"    {source.value} --> {target.value}: {reason}")
    lines.append("    expired --> [*]: grace time, then garbage collection")
    return "\n".join(lines) + "\n"
