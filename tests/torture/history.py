"""The history of a node, watched from outside: nothing in it may change, but to a tombstone."""

from __future__ import annotations

from tierdex.clock import SystemClock
from tierdex.errors import NotFoundError
from tierdex.ids import SystemIds
from tierdex.lifecycle.manifests.manifest import Tombstone
from tierdex.lifecycle.manifests.manifest_codec import decode_manifest
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.paths import StorePaths


class History:
    """Every commit that was ever seen of a node."""

    def __init__(self, store, node):
        self.store, self.node, self.paths = store, node, StorePaths(node)
        self.commits, self.numbers = {}, set()

    def look(self):
        """Read all numbers. Raises AssertionError when one has changed or is gone."""
        listed = {
            self.paths.parse_manifest(found.key)
            for found in self.store.list(self.paths.manifest_prefix)
        }
        assert listed >= self.numbers, f"gone: {sorted(self.numbers - listed)}"
        self.numbers = listed
        for number in listed:
            key = self.paths.manifest(number)
            found = decode_manifest(self.store.get(key), key=key, node=self.node, number=number)
            if not isinstance(found, Tombstone):
                before = self.commits.setdefault(number, found)
                assert before == found, f"number {number} was written twice: a fork"

    def check(self):
        """Numbers have no hole; epochs only rise; an epoch has one owner."""
        assert self.numbers == set(range(1, len(self.numbers) + 1)), sorted(self.numbers)
        commits = [self.commits[number] for number in sorted(self.commits)]
        epochs = [commit.epoch for commit in commits]
        assert epochs == sorted(epochs), epochs
        owners = {(commit.epoch, commit.owner) for commit in commits}
        assert len(owners) == len(set(epochs)), "two owners committed in one epoch"

    def check_objects(self):
        """Every listed object is there, whole. Only while no other process deletes."""
        log = ManifestLog(
            self.store, self.node, clock=SystemClock(), ids=SystemIds(), checkpoint_every=64
        )
        for row in log.load().files.values():
            try:
                size = self.store.head(row.object_key).size
            except NotFoundError:
                raise AssertionError(f"{row.object_key} is listed and gone") from None
            assert size == row.bytes, row
