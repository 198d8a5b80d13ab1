from __future__ import annotations

from pathlib import Path

import pytest

from tools.debian import has_programs

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="session")
def promtool():
    if not has_programs(["promtool"], ["prometheus"]):
        pytest.skip("promtool cannot be installed here")
    return "promtool"
