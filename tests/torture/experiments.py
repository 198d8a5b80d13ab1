"""The experiments of `make torture`: each an endless stream of cases, a case is one function call.

A case has a number; its seed is made of the run's seed and that number, so that one case can be run
again alone. Whatever a case raises is a finding. `campaign.py` runs them, docs/reliability.md lists
them.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.crash import experiments as calls
from tests.crash.real_process import every_real_point, kill_at_call
from tests.crash.scenarios import SCENARIOS
from tests.simulation.crash import CrashPoint
from tests.torture import (
    bad_network,
    bad_store,
    corruption,
    damaged_index,
    dead_store,
    false_matches,
    fleet,
    forgery,
    forgetting,
    forgotten_messages,
    http,
    interleaved_index,
    interleaved_log,
    log_life,
    log_soak,
    log_takeovers,
    lost_manifest,
    many_queues,
    merged_runs,
    preloaded_faults,
    real_servers,
    recycled_files,
    row_readers,
    simulation,
    soak,
    stopped_logs,
    stopped_owners,
    takeovers,
    writers,
)
from tests.torture.experiment import Experiment

_NAMES = tuple(SCENARIOS)


def _kill_calls(number):
    name, point, in_store = every_real_point()[number]
    kill_at_call(name, point, in_store=in_store)
    return 1


def _cut_power(seed):
    source = random.Random(seed)
    name = source.choice(_NAMES)
    disk, store, _ = calls.count_calls(name)
    in_store = store > 0 and source.random() < 0.1
    point = CrashPoint(
        source.randrange(1, (store if in_store else disk) + 1), source.random() < 0.5
    )
    return calls.cut_power(
        name, point, choices=32, seed=seed, in_store=in_store, older_stores=source.random() < 0.2
    )


def _every_failure():
    return [failure for name in _NAMES for failure in calls.every_failure(name)]


def _fail_calls(number):
    calls.fail(_every_failure()[number])
    return 1


def _kill_writer(seed):
    return writers.kill_writers(6, seed)


def _kill_server(seed):
    return writers.kill_servers(4, seed)


def _bad_store(seed):
    share = random.Random(seed).choice((0.5, 1.0, 1.5))
    return bad_store.live_with_faults(seed, 200, share).total()


def _preloaded_faults(seed):
    return preloaded_faults.fail_system_calls(seed)


def _bad_network(seed):
    return sum(bad_network.fail_many_requests(1000, seed).values())


def _http(seed):
    http.send_hostile_requests(2000, seed)
    return 2000 + http.send_generated_requests(8, seed)


def _damaged_index(seed):
    return sum(damaged_index.damage_many(100, seed).values())


def _forged_files(seed):
    return forgery.forge(1000, seed).total()


def _takeover(seed):
    source = random.Random(seed)
    skew = source.choice((0.0, 30.0, 4000.0, 9000.0))
    nth, after = source.randrange(1, 60), source.random() < 0.5
    takeover = takeovers.Takeover(seed, merge=source.random() < 0.7)
    return int(takeover.run(nth, after=after, skew=skew))


def _lost_manifest(seed):
    return lost_manifest.lose_manifests(seed)


def _stopped_owners(seed):
    return stopped_owners.take_over_from_stopped_owners(seed)


def _fleet(seed):
    return fleet.live_in_a_fleet(seed)


def _forget(seed):
    return forgetting.forget_beside_failures(seed)


def _merged_runs(seed):
    return merged_runs.merge_and_ask(seed)


def _simulation(seed):
    simulation.simulate(seed, steps=random.Random(seed).choice((30, 45, 90)))
    return 1


def _interleaving(seed):
    interleaved_index.interleave(seed)
    return 1


def _interleaved_log(seed):
    interleaved_log.interleave_log(seed)
    return 1


def _soak(seed):
    with tempfile.TemporaryDirectory() as folder:
        soak.soak(Path(folder), cycles=1000, seed=seed)
    return 1000


def _many_queues(seed):
    topics = random.Random(seed).choice((1, 1000, 100_000))
    return many_queues.publish_many_queues(seed, topics=topics, queues=1_000_000 // topics)


def _log_kills(seed):
    return log_life.kill_writers(6, seed)


def _log_soak(seed, seconds):
    with tempfile.TemporaryDirectory() as folder:
        return log_soak.soak(Path(folder), seconds or 3600, seed, tell=print).counts["rounds"]


def _dead_store(seed, seconds):
    seconds = seconds or 600
    with tempfile.TemporaryDirectory() as folder:
        print(dead_store.survive(Path(folder), seconds, seed, bytes_a_second=20e6))
    return round(seconds)


def _false_matches(seed):
    with tempfile.TemporaryDirectory() as folder:
        return false_matches.search_for_false_matches(Path(folder) / "data", 500_000, seed)


EXPERIMENTS = (
    Experiment(
        "kill-writer", "kill -9 of a real embedded writer under load", "kills", _kill_writer,
        dose=1600, small_dose=24, minutes=8,
    ),
    Experiment(
        "kill-server", "kill -9 of the HTTP server under load", "kills", _kill_server,
        dose=400, small_dose=16, minutes=3,
    ),
    Experiment(
        "kill-calls", "kill -9 of a real process around every call on disk and store", "kills",
        _kill_calls, dose=None, small_dose=60, minutes=6, cases=lambda: len(every_real_point()),
    ),
    Experiment(
        "power-cut", "power cut, simulated disk", "disk states", _cut_power,
        dose=50_000, small_dose=300, minutes=8,
    ),
    Experiment(
        "recycled-files", "kill and power cut, files made of the blocks of others", "disk states",
        recycled_files.end_anywhere, dose=50_000, small_dose=60, minutes=12,
    ),
    Experiment(
        "failing-calls", "each system call of 16 scenarios fails, once and for ever", "faults",
        _fail_calls, dose=None, small_dose=214, minutes=20, cases=lambda: len(_every_failure()),
    ),
    Experiment(
        "preloaded-faults", "system calls of a real process fail: EIO, ENOSPC, EMFILE, late renames",
        "faults", _preloaded_faults, dose=5000, small_dose=15, minutes=10,
    ),
    Experiment(
        "bad-store", "a store that fails, lies and crawls", "faults", _bad_store,
        dose=70_000, small_dose=500, minutes=10,
    ),
    Experiment(
        "bad-network", "a store that fails behind a real socket, with threads", "faults",
        _bad_network, dose=30_000, small_dose=250, minutes=10,
    ),
    Experiment(
        "http", "hostile bytes against a real server, and generated requests", "cases",
        _http, dose=50_000, small_dose=600, minutes=10,
    ),
    corruption.ALL,
    Experiment(
        "forged-files", "absurd numbers in files whose checksums are right", "files", _forged_files,
        dose=100_000, small_dose=900, minutes=10,
    ),
    Experiment(
        "damaged-index", "a whole index over damaged files and objects", "damages", _damaged_index,
        dose=20_000, small_dose=60, minutes=10,
    ),
    Experiment(
        "takeovers", "two owners, the older one a zombie", "takeovers", _takeover,
        dose=1400, small_dose=18, minutes=3,
    ),
    Experiment(
        "stopped-owners", "owners in real processes, stopped (SIGSTOP) and going on after others",
        "takeovers", _stopped_owners, dose=600, small_dose=9, minutes=5,
    ),
    Experiment(
        "fleet", "twenty services over one store: killed, stopped, cut off, answering late or wrongly",
        "answers", _fleet, dose=300_000, small_dose=200, minutes=20,
    ),
    Experiment(
        "merged-runs", "merges into runs: killed, over faults, beside each other, with readers that ask",
        "merges", _merged_runs, dose=3000, small_dose=3, minutes=20,
    ),
    Experiment(
        "lost-manifest", "a store that loses manifest objects, and a rollback accepted", "losses",
        _lost_manifest, dose=3000, small_dose=20, minutes=7,
    ),
    Experiment(
        "forget", "requests to forget, owners and merges that die or fail at any call", "failures", _forget,
        dose=8000, small_dose=4, minutes=15,
    ),
    Experiment(
        "simulation", "everything at once by a seeded scheduler", "seeds", _simulation,
        dose=10_000, small_dose=30, minutes=30,
    ),
    Experiment(
        "interleaving", "threads that change places at any line, as a seed says", "seeds",
        _interleaving, dose=1500, small_dose=3, minutes=20,
    ),
    Experiment(
        "interleaved-log", "each reader of a message log beside each change of its files, at any line",
        "seeds", _interleaved_log, dose=1500, small_dose=4, minutes=20,
    ),
    Experiment(
        "soak", "small lives: memory, descriptors, mappings, disk", "cycles", _soak,
        dose=5000, small_dose=100, minutes=15,
    ),
    Experiment(
        "log-kills", "kill -9 of a real process that appends to a message log, and at its calls", "kills",
        _log_kills, dose=1000, small_dose=6, minutes=8,
    ),
    Experiment(
        "log-power-cut", "power cut, a message log and its index on a simulated disk", "disk states",
        log_life.cut_power, dose=10_000, small_dose=16, minutes=10,
    ),
    Experiment(
        "log-failing-calls", "system calls of a message log fail, once and for ever", "faults",
        log_life.fail_call, dose=2000, small_dose=8, minutes=8,
    ),
    Experiment(
        "log-forget", "a message log that forgets, killed, cut off and failing at any call", "ends",
        forgotten_messages.forget_around_a_stop, dose=5000, small_dose=2, minutes=10,
    ),
    Experiment(
        "log-takeovers", "a message log handed over, lost and taken, adopted; store faults and power cuts",
        "takeovers", log_takeovers.take_over, dose=2000, small_dose=8, minutes=15,
    ),
    Experiment(
        "stopped-logs", "a message log taken from an owner in a real process, stopped (SIGSTOP) and going on",
        "takeovers", stopped_logs.take_over, dose=600, small_dose=2, minutes=10,
    ),
    Experiment(
        "log-dead-store", "a message log under full load whose store is dead for ten minutes", "seconds",
        _dead_store, dose=600, small_dose=1, minutes=15, takes_time=True,
    ),
    Experiment(
        "log-soak", "an hour of a message log with everything at once: memory, descriptors, disk",
        "rounds", _log_soak, dose=30, small_dose=2, minutes=65, takes_time=True,
    ),
    Experiment(
        "false-matches", "collisions and absent keys", "lookups", _false_matches,
        dose=20_000_000, small_dose=100_000, minutes=2,
    ),
    Experiment(
        "row-readers", "odd text in CSV and JSON lines, beside a simple reading of the same", "rows",
        row_readers.read_odd_text, dose=7_500_000, small_dose=2_000, minutes=60,
    ),
    Experiment(
        "many-queues", "a million queues: small commits, watermarks kept", "queues", _many_queues,
        dose=6_000_000, small_dose=20_000, minutes=2,
    ),
    Experiment(
        "real-servers", "brokers followed under kill -9; RocketMQ's own index files read in place",
        "keys and tests", lambda number: real_servers.CASES[number](), dose=None, small_dose=0,
        minutes=6, cases=lambda: len(real_servers.CASES),
    ),
)  # fmt: skip
