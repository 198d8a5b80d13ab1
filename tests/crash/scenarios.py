"""What is interrupted: the ways of an entry through its life, as lists of steps.

A step is a function of a site. What a step raises (when something was made to fail) ends that step
only, so that a scenario shows what the index does *after* an error; a crash ends the process.
"""

from __future__ import annotations

from tests.stateful.world import UNWELL
from tierdex.testing.components import components_of


def batch(count, topic="orders", key="A", durability="os"):
    def step(site):
        puts = [site.make_put(topic, [key], f"M{i}", i % 2, 1000 + i) for i in range(count)]
        site.put_batch(puts, durability)

    return step


def single(count, durability="received"):
    def step(site):
        for i in range(count):
            site.put(site.make_put("single", ["K", "L"], None, 0, i), durability)

    return step


def flush(level):
    return lambda site: site.flush(level)


def roll(site):
    site.index.roll()


def compact(site):
    site.compact()


def pass_time(seconds):
    return lambda site: site.world.clock.advance(seconds)


def expire(site):
    site.expire(site.world.clock.now_ms() + 1)


def query(site):
    for lookup in site.model.lookups:
        site.index.query(**lookup.fields(), max_count=500)


def tend(site):
    writer = components_of(site.index).writing.writer
    writer.roll_when_old()
    writer.prepare_next()


def reopen(site):
    index, site.index = site.index, None
    try:
        index.close()
    except UNWELL:
        site.model.drop_received()
        raise
    site.model.acknowledge("disk")
    site.open()


def small_files(count):
    return [step for _ in range(count) for step in (batch(5), roll)]


def same_lives(count):
    """Files of the same batches, each made of the blocks of one before: old rows lie where new ones go."""
    life = (batch(20), batch(20), flush("disk"), tend, roll, batch(7), batch(3), compact)
    return [step for _ in range(count) for step in life]


SCENARIOS = {
    "put_and_flush": [single(3), batch(10), flush("disk"), single(2), flush("os"), flush("disk")],
    "put_over_files": [batch(40), batch(100), single(20), flush("disk"), batch(30), flush("disk")],
    "roll_and_compact": [batch(30), flush("disk"), roll, batch(10), compact, query],
    "publish": [batch(30), single(3), roll, compact, batch(5), flush("remote"), query],
    "publish_several": [*small_files(3), compact, batch(3), roll, compact, query],
    "merge": [*small_files(4), compact, pass_time(40), compact, query],
    "expire": [*small_files(2), compact, expire, pass_time(4000), compact, pass_time(4000), compact],
    "collect": [*small_files(4), compact, pass_time(4000), compact, pass_time(4000), compact, query],
    "reopen": [batch(60), single(3), reopen, batch(50), flush("disk"), reopen, query],
    "tend": [batch(60), tend, batch(60), pass_time(4000), tend, batch(4), flush("disk"), compact],
    "recycle": [*same_lives(3), batch(20), batch(20), flush("disk"), single(4), batch(4), query],
    "remote": [single(5), flush("remote"), batch(100), flush("remote"), flush("remote")],
    "full_life": [
        batch(60), flush("disk"), batch(80), roll, compact, single(9), roll, compact, pass_time(40),
        compact, expire, pass_time(4000), compact, batch(5), flush("remote"), query,
    ],
}  # fmt: skip

# The store is a folder on the disk that fails, as it is by default.
ON_ONE_DISK = ("publish_on_one_disk", "merge_on_one_disk", "full_life_on_one_disk")
SCENARIOS |= {name: SCENARIOS[name.removesuffix("_on_one_disk")] for name in ON_ONE_DISK}


def settings_of(name):
    name = name.removesuffix("_on_one_disk")
    return {"merge_below_items": 400 if name in ("merge", "collect", "full_life") else 0}


def run(site, steps):
    """Run all steps; return the errors that ended some of them."""
    errors = []
    for step in steps:
        try:
            if site.index is None:
                site.open()
            step(site)
        except UNWELL as error:
            errors.append(error)
            site.world.clock.advance(1)  # a caller that tries again later
    return errors
