"""Every invariant of a RocketMQ index file, in words.

Local: items 1..n are there, each is reached exactly once from the slots, links lead to older items
of the same slot, slots hold what hashes to them, nothing follows the newest item's number.
Compacted: runs touch each other in slot order and fill the file, their items hash to their slot.
Both: the header's counts and end agree with the content.

Pure: arrays in, sentences out. Depends on numpy and layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.rocketmq.layout import RUN_ITEM, SMALLEST_INT, slot_of

if TYPE_CHECKING:
    from tierdex.rocketmq.layout import Shape


def check_rows(header: np.void, shape: Shape, slots: np.ndarray, items: np.ndarray) -> list[str]:
    """Return the broken invariants. `items` are 1..n of a local file, all of a compacted one."""
    problems = _check_times(header, items)
    homes = slot_of(items["hash"], shape.slot_capacity)
    lost = int(((items["hash"] < 0) & (items["hash"] == SMALLEST_INT) & (homes < 0)).sum())
    if lost:
        problems.append(f"{lost} items hash to -2^31, have no slot and may have damaged the header")
    negative = int((homes < 0).sum()) - lost
    if negative:
        problems.append(f"{negative} items hold a negative hash")
    if shape.form == "local":
        used = slots["newest"] != 0
        problems += _check_chains(slots, items, homes, used)
    else:
        used = slots["length"] > 0
        problems += _check_runs(shape, slots, homes)
    if int(used.sum()) != header["used_slots"]:
        problems.append(
            f"the header counts {header['used_slots']} used slots, there are {used.sum()}"
        )
    return problems


def _check_times(header: np.void, items: np.ndarray) -> list[str]:
    if not len(items):
        return []
    newest = int(header["begin_ms"]) + int(items["time_diff"].max()) * 1000
    # Cut toward zero: the true newest time is up to a second above a time that is not negative.
    if not newest - 999 <= header["end_ms"] and newest > header["begin_ms"]:
        return [f"the header ends at {header['end_ms']}, an entry is of {newest}"]
    return []


def _check_chains(
    slots: np.ndarray, items: np.ndarray, homes: np.ndarray, used: np.ndarray
) -> list[str]:
    problems = []
    count = len(items)
    numbers = np.arange(1, count + 1)
    heads = slots["newest"].astype(np.int64)
    links = items["previous"].astype(np.int64)
    if (slots["unused"] != 0).any():
        problems.append(f"{int((slots['unused'] != 0).sum())} slots hold bytes where none belong")
    wild = used & ((heads < 0) | (heads > count))
    if wild.any():
        where = int(np.argmax(wild))
        problems.append(f"slot {where} leads to item {heads[where]} of {count}")
    forward = (links < 0) | (links >= numbers)
    if forward.any():
        where = int(np.argmax(forward))
        problems.append(f"item {where + 1} links to item {links[where]}, which is not older")
    good_heads = np.flatnonzero(used & ~wild)
    astray = homes[heads[good_heads] - 1] != good_heads
    if astray.any():
        problems.append(f"{int(astray.sum())} slots lead to an item of another slot")
    linked = np.flatnonzero(~forward & (links > 0))
    crossed = homes[links[linked] - 1] != homes[linked]
    if crossed.any():
        problems.append(f"{int(crossed.sum())} items link to an item of another slot")
    reached = np.bincount(heads[good_heads], minlength=count + 1)
    reached += np.bincount(links[linked], minlength=count + 1)
    unreached = int(((reached[1:] == 0) & (homes >= 0)).sum())
    if unreached:
        problems.append(f"{unreached} items are reached from no slot")
    if (reached[1:] > 1).any():
        problems.append(f"{int((reached[1:] > 1).sum())} items are reached more than once")
    return problems


def _check_runs(shape: Shape, slots: np.ndarray, homes: np.ndarray) -> list[str]:
    lengths = slots["length"].astype(np.int64)
    ends = shape.items_at + np.cumsum(lengths)
    wrong = slots["position"] != ends - lengths
    if wrong.any():
        return [f"the run of slot {int(np.argmax(wrong))} does not begin where the last one ends"]
    if ends[-1] != shape.length or (lengths < 0).any() or (lengths % RUN_ITEM.itemsize).any():
        return [f"the runs end at byte {ends[-1]}, the file at {shape.length}"]
    owners = np.repeat(np.arange(shape.slot_capacity), lengths // RUN_ITEM.itemsize)
    strays = int((owners != homes).sum())
    return [f"{strays} items lie in the run of another slot"] if strays else []
