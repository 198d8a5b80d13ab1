"""A site for thousands of crashes: what it asks after each, it asks once."""

from __future__ import annotations

import functools

from tests.simulation.crash import CrashingStore
from tests.simulation.scheduler import InlineExecutor
from tests.stateful.model import Lookup
from tests.stateful.world import ROOT, Site, World, identities_of
from tierdex import Index
from tierdex.ids import SeededIds
from tierdex.index_service.opening.folder_owner import Claiming
from tierdex.index_service.opening.open import open_components
from tierdex.seams import Seams
from tierdex.settings import load_settings
from tierdex.storage_layer.local import LocalStore


@functools.cache
def _settings(**settings):
    return load_settings(**settings)


class CrashSite(Site):
    """Opens without reading the environment again; learns and compares from the same answers."""

    def open(self):
        world = self.world
        if not world.is_ready:
            return  # the scenario opens it
        self.opened += 1
        if world.on_one_disk:
            world.objects = world.store = LocalStore(
                ROOT / "store", filesystem=self.disk, clock=world.clock,
                ids=SeededIds(world.seed * 1_000_003 + self.opened + 500_000),
            )  # fmt: skip
        self.index = Index(
            open_components(
                ROOT, world.store, None, claiming=Claiming(),
                settings=_settings(node=self.name, **world.settings),
                seams=Seams(
                    world.clock, SeededIds(world.seed * 1_000_003 + self.opened), self.disk,
                    InlineExecutor(),
                ),
            )
        )  # fmt: skip

    def learn_survivors(self, level):
        found = self.answers()
        survivors = {place for entries in found.values() for place in identities_of(entries)}
        self.model.cut_to_survivors(survivors, level)
        self.check_known()
        self.compare(found)

    def check_all(self):
        found = self.answers()
        if self.model.uncertain or self.model.leaving:
            self.model.resolve(
                {place for entries in found.values() for place in identities_of(entries)}
            )
        self.compare(found)

    def answers(self):
        lookups = self.model.lookups
        return dict(zip(lookups, self.entries_of_all(lookups), strict=True))

    def compare(self, found):
        """Every answer is what the model expects, in order; every file is sound."""
        expected = self.expected_of_all()
        for lookup, entries in found.items():
            assert identities_of(entries) == expected.get(lookup, []), lookup
            numbers = [entry.file_id for entry in entries]
            assert numbers == sorted(numbers, reverse=True)  # of one node, 20 digits each
        self.check_files()

    def expected_of_all(self):
        """Return what the model expects of every lookup that finds anything, in one walk."""
        found = {}
        for number in range(len(self.model.puts) - 1, -1, -1):
            put = self.model.puts[number]
            if number not in self.model.gone:
                for lookup in _lookups_of(put):
                    found.setdefault(lookup, {}).setdefault(put.identity)
        return {lookup: list(entries) for lookup, entries in found.items()}


def _lookups_of(put):
    yield from (Lookup(put.topic, key) for key in put.keys)
    if put.message_id:
        yield Lookup(None, message_id=put.message_id)


class CrashWorld(World):
    """One such site over a store that dies with the process, or lies on the site's own disk."""

    def __init__(self, seed, *, on_one_disk=False, **settings):
        super().__init__(seed, names=(), **settings)
        self.on_one_disk, self.is_ready = on_one_disk, False
        self.faulty = self.store
        self.store = self.crashing = CrashingStore(
            self.store, on_crash=lambda: self.sites["alpha"].disk.crash_at(1)
        )
        self.sites["alpha"] = CrashSite(self, "alpha")
        self.is_ready = True

    def heal(self):
        self.faulty.chances = {}
        self.faulty.cancel_faults()
        self.faulty.end_outage()
        self.crashing.revive()
        for site in self.sites.values():
            site.disk.heal()
