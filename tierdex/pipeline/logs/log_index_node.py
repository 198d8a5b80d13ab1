"""The node that has the index of a log which Spark built (`index_log`), and the log's node of an entry.

An entry's place is a node's queue and offset. The index that a log makes itself lies in its own node, which
has an owner; one that is built beside it lies in a shared node, whose name says whose log it is.

Depends on nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container

_SUFFIX: Final = ".index"


def index_node_of(log_node: str) -> str:
    """Return the shared node of the index that is built of a log."""
    return f"{log_node}{_SUFFIX}"


def log_node_of(node: str, logs: Container[str]) -> str:
    """Return the node in whose log the entries of `node` lie; `logs` are those of the nodes with a log."""
    return node if node in logs else node.removesuffix(_SUFFIX)
