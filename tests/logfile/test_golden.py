"""Golden files of format version 1, committed once, never written again: every later program reads them.

compatibility-sensitive: a failure here means that files in the field cannot be read any more.
`v1_log_unsealed.tdl` is as a killed writer leaves it, `v1_log_sealed.tdl` the same journal sealed,
`v1_log_grouped.tdl` the same messages compacted (lz4 and plain pages).
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.logfile.log_files import FILESYSTEM, read_all
from tierdex.logfile.check import check_log_file, open_log_file
from tierdex.logfile.journal.file import recover_journal

DATA = Path(__file__).parents[1] / "data"
EXPECTED = json.loads((DATA / "v1_log.json").read_text())
NAMES = sorted(EXPECTED["digests"])


@pytest.mark.parametrize("name", NAMES)
def test_golden_file_was_never_regenerated(name):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == EXPECTED["digests"][name]


def messages_of(file, queue):
    return [
        {
            "offset": message.offset,
            "timestamp": message.timestamp,
            "body": message.body.hex(),
            "message_id": message.extra.message_id,
            "keys": list(message.extra.keys),
            "headers": [[name, value.hex()] for name, value in message.extra.headers],
            "deliver_at": message.extra.deliver_at,
        }
        for message in read_all(file, queue)
    ]


@pytest.mark.parametrize("name", [*NAMES, "recovered"])
def test_golden_file_gives_the_messages_of_its_day(name, tmp_path):
    if name == "recovered":
        shutil.copyfile(DATA / "v1_log_unsealed.tdl", tmp_path / "copy")
        file = recover_journal(FILESYSTEM, tmp_path / "copy")
        assert file.check() == []
    else:
        file = open_log_file(FILESYSTEM, DATA / name)
        assert check_log_file(FILESYSTEM, DATA / name) == []
    assert file.uuid.hex() == EXPECTED["uuid"]
    assert file.header.generation == EXPECTED["generation"]
    for queue in EXPECTED["queues"]:
        found = messages_of(file, (queue["topic"], queue["queue_id"]))
        assert found == queue["messages"]
    assert file.message_count == sum(len(queue["messages"]) for queue in EXPECTED["queues"])
    file.close()
