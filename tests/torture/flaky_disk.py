"""The machine's file system, whose calls fail now and then; or all, as for a process that is gone."""

from __future__ import annotations

import errno

# What may fail at random. Not `lock`, nor what production answers from memory in the same breath.
FAILING = (
    "open", "rename", "unlink", "sync_folder", "list_folder", "file_size", "modified_ms",
    "read_at", "write_at", "reserve", "truncate", "sync", "map",
)  # fmt: skip
HARMLESS = ("close", "release")  # a descriptor is given back whatever happens


class FlakyDisk:
    """The state of all wrappers: `chance` of a failure at each call, `is_gone`: every call fails."""

    def __init__(self, source):
        self.source, self.chance, self.is_gone, self.struck = source, 0.0, False, 0

    def wrap(self, inner):
        return _Flaky(inner, self)

    def strike(self, name):
        if name in HARMLESS:
            return
        if self.is_gone:
            raise OSError(errno.EIO, "the process is gone")
        if name in FAILING and self.chance and self.source.random() < self.chance:
            self.struck += 1
            raise OSError(self.source.choice((errno.EIO, errno.ENOSPC)), f"{name} fails")


class _Flaky:
    """A file system, a file, a mapping or a lock in front of `inner`."""

    def __init__(self, inner, disk):
        self._inner, self._disk = inner, disk

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments, **named):
            self._disk.strike(name)
            result = found(*arguments, **named)
            return self._disk.wrap(result) if name in ("open", "map", "lock") else result

        return call
