"""Whatever way a case ends, the campaign tells how to run it again and goes on with the next."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.torture import report
from tests.torture.campaign import Campaign
from tests.torture.odd_experiments import EXPERIMENTS

_MODULE = "tests.torture.odd_experiments"


@pytest.mark.parametrize(
    ("name", "case", "tried"), [("raising", 2, 5), ("crashing", 1, 9), ("hanging", 0, 1)]
)
def test_bad_end_of_a_case_is_one_finding(name, case, tried, capsys):
    experiment = next(each for each in EXPERIMENTS if each.name == name)
    limit = 2.0 if name == "hanging" else 60.0
    campaign = Campaign(experiment, 7, case_limit_s=limit, module=_MODULE).run()
    again = f"python -m tests.torture --module {_MODULE} --only {name} --seed 7 --case {case}"
    assert campaign.findings == [again]
    if name == "raising":
        command = [sys.executable, *again.split()[1:]]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert "AssertionError: wrong" in ran.stderr
    assert (campaign.tried, campaign.reached) == (tried, True)
    assert again in capsys.readouterr().out


def test_report_keeps_the_last_run_and_sums_up_all(tmp_path):
    path = tmp_path / "reliability.json"
    for seed, seconds in ((1, None), (2, 0.0)):
        report.add([Campaign(EXPERIMENTS[0], seed, seconds, module=_MODULE).run()], path)
    told = report.read(path)["raising"]
    assert (told["runs"], told["tried_in_all"], told["seeds"]) == (2, 5, [1, 2])
    assert (told["last"]["seed"], told["last"]["reached"]) == (2, False)
