"""Hypothesis strategies for an index's arguments: few topics and keys, so that they collide.

Shipped for programs that embed Tierdex and test against it.

Depends on hypothesis only.
"""

from __future__ import annotations

from hypothesis import strategies as st

TOPICS = ("orders", "a", "订单", "a#b")
KEYS = ("A", "b#A", "😀", "ORDER-1", "k" * 300)
MESSAGE_IDS = ("M1", "M2", "A", "7F00000100002A9F")

topics = st.sampled_from(TOPICS)
keys = st.sampled_from(KEYS)
key_lists = st.lists(keys, min_size=1, max_size=3)
message_ids = st.none() | st.sampled_from(MESSAGE_IDS)
queue_ids = st.sampled_from((0, 1, (1 << 31) - 1))
# Times of one afternoon, and now and then the extremes: any int64 is a legal time.
times = st.one_of(
    st.integers(1_000, 1_050),
    st.sampled_from((-(1 << 63), -1, 0, (1 << 63) - 1)),
)
levels = st.sampled_from(("received", "os", "disk"))
page_sizes = st.sampled_from((1, 2, 3, 7, 64))
