"""`Source`: what a log must offer to be followed. One follower loop reads all kinds, by this contract.

A source has *partitions*, small numbers from 0, or any int32 that always means the same part of the log. In a
partition each record has an *offset*: an int64 that only rises. A *position* is the offset at which reading
begins; the record there need not exist. Offsets may have holes (compaction, aborted transactions).

What every source promises, held to it by one suite (tests/following/test_source.py):

* the same record has the same partition, offset and bytes each time that it is read, and the same timestamp
  where its log has times;
* `read` gives every record from a partition's position on, in order of offsets, none twice, unless the log
  has lost it; records that readers of the log do not see (aborted transactions) are not given;
* `bounds` tells the truth about what the log still has, so that what was lost is noticed;
* a log that does not answer raises UnavailableError, and the next call tries again; a wrong name is
  NotFoundError, missing rights are PermissionDeniedError, a bad option is InvalidRequestError;
* no error and no name holds a password.

After an error of any method but `fetch`, the caller opens again before it reads.

One thread calls `open` and `read`. `fetch` and `bounds` may be called without `open`, from that thread too:
who fetches from another thread opens a source of its own.

A source of one's own is any object with these methods; docs/follow.md has one in forty lines.

Depends on nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.following.records import Bounds, Parts, Record, RecordBatch


class Source(Protocol):
    """A log that can be followed."""

    @property
    def name(self) -> str:
        """What readers are told: where the log is, without any secret."""
        ...

    @property
    def topic(self) -> str:
        """The topic that its records are indexed under when the caller names none."""
        ...

    @property
    def has_times(self) -> bool:
        """Whether its records carry a time; otherwise the caller must say where it stands."""
        ...

    def identity(self) -> str:
        """Return what tells this log from another one of the same name; "" when it cannot be told.

        Offsets of two identities have nothing to do with each other.
        """
        ...

    def partitions(self) -> Sequence[int]:
        """Return the partitions that there are now."""
        ...

    def name_of(self, partition: int) -> str:
        """Return what readers call the partition."""
        ...

    def place_of(self, partition: int, offset: int) -> str:
        """Return what readers call the place of a record; of a partition that `fetch` looked for at least."""
        ...

    @property
    def is_dense(self) -> bool:
        """Whether offsets count: a gap of n offsets is up to n messages. Otherwise it counts as one."""
        ...

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        """Return what the log holds of each of these partitions; one that is gone is left out.

        `first` is above a position only if something from that position on was lost (None: not yet read).
        """
        ...

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        """Read these partitions, and no others, from these positions on. It may be called again."""
        ...

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """Return the records that came, at most about so many; None when none did for `timeout_s`."""
        ...

    def fetch(self, partition: int, offset: int) -> Record | None:
        """Return the one record at an offset, with all its parts; None when the log has it no more."""
        ...

    def close(self) -> None:
        """End connections. Idempotent."""
        ...


@runtime_checkable
class NamingSource(Source, Protocol):
    """A source whose records have names of their own: what is indexed when its follower is not told."""

    @property
    def usual_keys(self) -> Sequence[str]:
        """The keys' places in a record, as `tierdex follow --key` takes them."""
        ...

    @property
    def usual_message_id(self) -> str:
        """The message ID's place."""
        ...


@runtime_checkable
class RememberingSource(Source, Protocol):
    """A source whose partitions have to be known again: files, which are renamed and replaced.

    What it remembers is saved with the positions, and given to every source of the log, also to those that
    show its messages.
    """

    @property
    def replaced(self) -> int:
        """How often another log began under the name of a partition: that is a new partition."""
        ...

    @property
    def skipped(self) -> Mapping[str, str]:
        """What is there under the name of a partition and is none: why, by name."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Know again what `memory` told, in another process perhaps."""
        ...

    def remembers(self, partition: int) -> bool:
        """Return whether a partition was recalled; a position in any other is not to be trusted."""
        ...

    def memory(self, positions: Mapping[int, int]) -> dict[str, Any]:
        """Return what to remember when all was read up to these positions, for JSON."""
        ...
