from __future__ import annotations

from tierdex.index_service.warm_up import warm_up


def test_warm_up_finds_its_own_row():
    warm_up()
