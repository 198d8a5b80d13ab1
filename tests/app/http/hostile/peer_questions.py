"""Questions of peers, sound or not, for owners that are not the one that is asked."""

from __future__ import annotations

import numpy as np

from tierdex.index_service.peers.messages import Owner, Question, encode_question
from tierdex.index_service.requests.lookups import NO_TOPIC, Lookups


def odd_question(rng):
    """Return the bytes of one."""
    count = rng.choice((0, 1, 3))
    numbers = np.arange(count)
    lookups = Lookups(
        numbers.astype(np.uint64), rng.choice((0, 1, 7)) * np.ones(count, np.uint8), ["orders"],
        np.full(count, rng.choice((0, NO_TOPIC)), np.int32), numbers - rng.choice((0, 1 << 62)),
        numbers, numbers, str,
    )  # fmt: skip
    owner = Owner(
        rng.choice(("local", "", "../x", "http://evil.example", "a" * 5000)),
        rng.choice((0, 1, -1, 1 << 62)),
        rng.choice(("00" * 16, "", "zz", "http://evil.example/")),
        rng.choice((0, 1, -5, 1 << 62)),
    )
    limit = rng.choice((1, 0, -1, 10_000, 10_001, 1 << 60))
    data = bytearray(encode_question(Question(owner, limit, lookups)))
    if rng.random() < 0.4:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)
