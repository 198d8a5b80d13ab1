"""Pages held against what the file says of them: checksum, shape, order, directory, topics.

Only the columns that a rule speaks of are unpacked: hash, tag and time. Whole rows are needed where a
hash repeats, since then location or time must differ; `check_pages` says on which pages that is.

Depends on the kernel decorator, page_codec, page_fields, page_lookup and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.kernels.page_codec import (
    ITEMS_PER_PAGE,
    PAGE_HEADER_BYTES,
    Target,
    page_item_count,
    plan_number,
    unpack_column,
    unpack_hashes,
)
from tierdex.indexfile.compacted.kernels.page_fields import (
    first_hash,
    max_time,
    min_time,
)
from tierdex.indexfile.compacted.kernels.page_lookup import (
    PAGE_COUNT,
    PLAN,
    entry_at,
    file_number,
    page_place,
)

# What is wrong with a page.
SOUND, BAD_CHECKSUM, NOT_FULL, BAD_FIRST_HASH, BAD_TIMES, NOT_SORTED, BAD_TOPIC = range(7)

# Counters of a check (i8 each), which go from call to call.
C_ITEMS = 0  # so far
C_DISTINCT = 1  # hashes so far
C_LAST = 2  # the last hash (bit pattern)
C_RUN = 3  # items of that hash so far
C_LONGEST = 4  # greatest C_RUN so far
C_FIRST_REPEAT = 5  # of this call: first page with a hash equal to the one before it; or -1
C_LAST_REPEAT = 6  # of this call: the last such page
CHECK_LENGTH = 7

_TAG, _TIME = 0, 1  # the first two columns of every plan
_TOPIC_MASK = np.uint32(layout.TOPIC_MASK)


@kernel
def _count_hashes(hashes: Any, counters: Any) -> Any:
    """Continue over `hashes` (u8[n]); return (whether they are in order, whether one repeats)."""
    last, run = np.uint64(counters[C_LAST]), counters[C_RUN]
    count = hashes.shape[0]
    falls = np.int64(hashes[0] < last)
    repeats = np.int64((hashes[0] == last) & (run > 0))
    for i in range(1, count):  # without a branch: in vectors
        falls += hashes[i] < hashes[i - 1]
        repeats += hashes[i] == hashes[i - 1]
    if repeats > 0:
        for i in range(count):
            run = run + 1 if hashes[i] == last else 1
            counters[C_LONGEST] = max(counters[C_LONGEST], run)
            last = hashes[i]
    counters[C_RUN] = run if repeats > 0 else 1
    counters[C_LONGEST] = max(counters[C_LONGEST], counters[C_RUN])
    counters[C_LAST] = np.int64(hashes[count - 1])
    counters[C_ITEMS] += count
    counters[C_DISTINCT] += count - repeats
    return falls == 0, repeats > 0


@kernel
def _time_bounds(times: Any, begin: int, end: int) -> Any:
    low, high = times[begin], times[begin]
    for i in range(begin, end):
        low = min(low, times[i])
        high = max(high, times[i])
    return low, high


@kernel
def _end_of_topic(tags: Any, begin: int) -> Any:
    """Return where the tags (u4) that have the topic of tag `begin` end."""
    others = np.uint32(begin > 0)
    for i in range(0 if begin > 0 else tags.shape[0]):  # one for all is the rule, and in vectors
        others |= tags[i] ^ tags[0]
    if others & _TOPIC_MASK == 0:
        return tags.shape[0]
    end = begin + 1
    while end < tags.shape[0] and (tags[end] ^ tags[begin]) & _TOPIC_MASK == 0:
        end += 1
    return end


@kernel
def _count_topics(tags: Any, times: Any, topics: Any) -> Any:
    """Add tags (u4) and times to `topics` i8[t, 3]; False: a topic is unknown."""
    begin = 0
    while begin < tags.shape[0]:
        end = _end_of_topic(tags, begin)
        topic = np.int64(tags[begin] & _TOPIC_MASK)
        if topic >= topics.shape[0]:
            return False
        low, high = _time_bounds(times, begin, end)
        if topics[topic, 0] > 0:
            low, high = min(low, topics[topic, 1]), max(high, topics[topic, 2])
        topics[topic, 0] += end - begin
        topics[topic, 1], topics[topic, 2] = low, high
        begin = end
    return True


@kernel
def _check_page(
    file: int, pages: int, page: int, hashes: Any, tags: Any, times: Any, counters: Any
) -> Any:
    """Unpack the columns of one page and compare it with the directory; return (items, what)."""
    plan = file_number(file, PLAN)
    position, length = page_place(file, page)
    place = pages + position
    items = page_item_count(place, length, plan, page) if length else np.int64(-1)
    if items < 0:
        return items, BAD_CHECKSUM
    if page + 1 < file_number(file, PAGE_COUNT) and items != plan_number(plan, ITEMS_PER_PAGE):
        return items, NOT_FULL
    header = place + PAGE_HEADER_BYTES
    at = unpack_hashes(place, items, hashes.ctypes.data, 8)
    header, at = unpack_column(plan, _TAG, header, at, items, Target(tags.ctypes.data, 4, 4))
    unpack_column(plan, _TIME, header, at, items, Target(times.ctypes.data, 8, 8))
    entry = entry_at(file, page)
    if hashes[0] != first_hash(entry):
        return items, BAD_FIRST_HASH
    low, high = _time_bounds(times, 0, items)
    if low != min_time(entry) or high != max_time(entry):
        return items, BAD_TIMES
    is_sorted, has_repeats = _count_hashes(hashes[:items], counters)
    if has_repeats:
        if counters[C_FIRST_REPEAT] < 0:
            counters[C_FIRST_REPEAT] = page
        counters[C_LAST_REPEAT] = page
    return items, SOUND if is_sorted else NOT_SORTED


@kernel
def check_pages(
    file: int, pages: int, first: int, count: int, hashes: Any, topics: Any, counters: Any
) -> Any:
    """Check `count` pages; return (page where it stopped, what is wrong, hashes written).

    `pages` is the address of the page at byte 0 of the file, if it were there as the others are. The
    hashes of their items go to `hashes` (u8, room for full pages), items and times to `topics`
    i8[t, 3]. The caller goes on behind a page that is not SOUND.
    """
    room = plan_number(file_number(file, PLAN), ITEMS_PER_PAGE)
    tags = np.empty(room, np.uint32)
    times = np.empty(room, np.int64)
    counters[C_FIRST_REPEAT] = counters[C_LAST_REPEAT] = -1
    done = 0
    for page in range(first, first + count):
        target = hashes[done : done + room]
        items, what = _check_page(file, pages, page, target, tags, times, counters)
        if what != SOUND:
            return page, what, done
        done += items
        if not _count_topics(tags[:items], times, topics):
            return page, BAD_TOPIC, done
    return first + count, SOUND, done
