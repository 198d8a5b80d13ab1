"""A small dose of each experiment of `make torture`, always with the same seeds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.crash import experiments
from tests.crash.scenarios import SCENARIOS
from tests.patience import PATIENCE_S
from tests.simulation.crash import every_call
from tests.torture import (
    bad_store,
    corruption,
    damaged_index,
    dead_store,
    false_matches,
    fleet,
    forgetting,
    forgotten_messages,
    interleaved_index,
    interleaved_log,
    log_life,
    log_soak,
    log_takeovers,
    lost_manifest,
    many_queues,
    merged_runs,
    preloaded_faults,
    recycled_files,
    row_readers,
    simulation,
    soak,
    stopped_logs,
    stopped_owners,
    takeovers,
    writers,
)
from tests.torture.campaign import Campaign
from tests.torture.experiments import EXPERIMENTS
from tests.torture.quick_folder import quick_folder

DOSES = {experiment.name: experiment.small_dose for experiment in EXPERIMENTS}


def test_killed_writers_lose_nothing_acknowledged():
    writers.kill_writers(6, 0)


def test_killed_servers_lose_nothing_acknowledged():
    writers.kill_servers(4, 0)


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_power_cut_loses_nothing_acknowledged_disk(name):
    points = list(every_call(experiments.count_calls(name)[0]))
    random.Random(name).shuffle(points)
    states = 0
    while states < 19 and points:  # of 16 scenarios: 300
        states += experiments.cut_power(name, points.pop(), choices=10)
    assert states >= 19


def test_file_made_of_the_blocks_of_another_gives_nothing_of_its_old_life():
    assert sum(recycled_files.end_anywhere(seed) for seed in range(3, 6)) >= DOSES["recycled-files"]


@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename", "map", "reserve"])
def test_scenarios_make_every_kind_of_call(kind):
    for name in SCENARIOS:
        assert experiments.count_calls(name)[2].get(kind, 0) > 0, name


@pytest.mark.parametrize("name", ["put_and_flush", "put_over_files", "publish"])
def test_failing_call_never_becomes_a_success(name):
    for failure in experiments.alternating_failures(name)[::20]:
        experiments.fail(failure)


@pytest.mark.skipif(preloaded_faults.find_compiler() is None, reason="needs a C compiler")
def test_failing_system_calls_of_a_process_lose_double_and_hide_nothing():
    struck = preloaded_faults.fail_system_calls(6, steps=200)
    assert struck >= DOSES["preloaded-faults"] // 3  # threads take turns as they like


@pytest.mark.parametrize("seed", range(2))
def test_bad_store_publishes_everything_once(seed):
    struck = bad_store.live_with_faults(seed, 250)
    assert struck.total() >= DOSES["bad-store"] // 2
    assert set(struck) == set(bad_store.CHANCES), "some fault never struck"


def test_killed_log_keeps_what_it_acknowledged_under_its_keys():
    assert log_life.kill_writers(DOSES["log-kills"], 0) == DOSES["log-kills"]


def test_log_and_index_agree_after_a_power_cut_anywhere():
    assert sum(log_life.cut_power(seed) for seed in range(2)) >= DOSES["log-power-cut"]


def test_log_moves_from_disk_to_disk_and_loses_nothing_that_was_published():
    assert sum(log_takeovers.take_over(seed) for seed in (18, 37)) >= DOSES["log-takeovers"]


@pytest.mark.parametrize("seed", [2, 12])  # stopped from outside, and by itself at a call
def test_log_owner_stopped_and_going_on_after_another_harms_nothing(seed):
    """It stops with an error, counts what it alone has, and its folder is adopted."""
    assert stopped_logs.take_over(seed) == 1


def test_log_whose_store_is_dead_refuses_nothing_and_publishes_all_of_it_afterwards():
    with quick_folder() as folder:
        seen = dead_store.survive(folder, DOSES["log-dead-store"], bytes_a_second=5e6)
    assert seen.refused_calls > 0
    assert seen.waiting_files > 0


def test_log_with_everything_at_once_loses_nothing_and_gives_everything_back():
    with quick_folder() as folder:
        counts = log_soak.soak(folder, 0, round_s=0.7, warm_up=1, grace_time=0.2).counts
    assert counts["rounds"] == counts["hand-overs"] == DOSES["log-soak"]


def test_log_and_index_agree_after_failing_calls():
    for seed in range(DOSES["log-failing-calls"]):
        log_life.fail_call(seed)


def test_log_that_stops_anywhere_shows_nothing_again_that_was_forgotten():
    assert forgotten_messages.forget_around_a_stop(1, states=1) >= DOSES["log-forget"]


def test_damaged_byte_of_any_form_never_changes_an_answer():
    """In a process of its own: a crash or a hang would be a finding too."""
    campaign = Campaign(
        corruption.SOME, 0, case_limit_s=PATIENCE_S, module="tests.torture.corruption"
    )
    campaign.run()
    assert campaign.findings == []
    assert campaign.tried >= corruption.SOME.small_dose


def test_index_over_a_damaged_file_or_object_never_answers_wrongly():
    outcomes = damaged_index.damage_many(DOSES["damaged-index"], 0)
    assert {kind for kind, _ in outcomes} == set(damaged_index.KINDS)


def test_stale_owner_lists_and_deletes_nothing():
    assert takeovers.take_over_everywhere(step=3) >= DOSES["takeovers"]


def test_store_that_loses_manifests_never_answers_completely_without_them():
    for seed in range(DOSES["lost-manifest"]):
        lost_manifest.lose_manifests(seed)


@pytest.mark.parametrize("seed", range(4))
def test_owner_stopped_and_going_on_after_another_harms_nothing(seed):
    assert stopped_owners.take_over_from_stopped_owners(seed) > 0


def test_fleet_of_services_lacks_nothing_before_its_as_of_without_naming_the_node():
    least = DOSES["fleet"]
    assert fleet.live(5, owners=2, readers=2, harms=3, least=least) >= least


def test_readers_answer_alike_whatever_becomes_of_merges_into_runs():
    assert merged_runs.merge_and_ask(7, steps=8) >= DOSES["merged-runs"]


def test_simulation_agrees_with_the_model_and_reaches_everything():
    counts = Counter()
    for seed in range(DOSES["simulation"]):
        counts += simulation.simulate(seed, steps=45).counts
    rare = {
        what: counts[what] for what, least in simulation.REACHED.items() if counts[what] < least
    }
    assert rare == {}


def test_same_seed_gives_the_same_trace():
    first, second = (simulation.simulate(7, steps=60) for _ in range(2))
    assert first.trace == second.trace


def test_threads_that_change_places_anywhere_find_what_was_put():
    asked = changes = 0
    for seed in range(DOSES["interleaving"]):
        run = interleaved_index.interleave(seed)
        asked, changes = asked + run.asked, changes + run.threads.changes
    assert asked > 20 * DOSES["interleaving"]
    assert changes > 200 * DOSES["interleaving"]


def test_readers_of_a_log_answer_beside_every_change_of_its_files():
    asked = changes = 0
    for seed in range(DOSES["interleaved-log"]):
        run = interleaved_log.interleave_log(seed)
        asked, changes = asked + run.asked, changes + run.threads.changes
    assert asked > 30 * DOSES["interleaved-log"]
    assert changes > 500 * DOSES["interleaved-log"]


def test_soak_leaves_memory_descriptors_mappings_and_disk_flat():
    with quick_folder() as folder:
        counts = soak.soak(folder, cycles=DOSES["soak"]).counts
    assert min(counts.values()) > 0, counts  # processes that were gone, faults of disk and store


@pytest.mark.parametrize("seed", [0, 1])  # 64 slots; one slot, where every chain is the whole file
def test_no_false_match_in_any_state(tmp_path, seed):
    asked = false_matches.search_for_false_matches(tmp_path / "data", 100_000, seed)
    assert asked >= (DOSES["false-matches"], 30_000)[seed]


def test_row_readers_read_odd_text_as_a_simple_reading_does():
    rows = sum(row_readers.read_odd_text(seed) for seed in range(200))
    assert rows >= DOSES["row-readers"]


def test_node_of_many_queues_makes_small_commits_and_keeps_watermarks():
    asked = many_queues.publish_many_queues(0, topics=200, queues=100)
    assert asked >= DOSES["many-queues"]


def test_requests_to_forget_that_die_or_fail_hide_all_of_it_or_nothing():
    failures = sum(forgetting.forget_beside_failures(seed) for seed in range(2))
    assert failures >= DOSES["forget"]
