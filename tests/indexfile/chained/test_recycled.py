"""A file made of another's blocks is a new file, byte for byte; and no reader may have the old one."""

import mmap
import os
import signal
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from tests.indexfile.chained_files import FILESYSTEM, UUID, key, make_file, make_part, offsets_of
from tierdex.fileparts.layout import FOOTER_BYTES, FOOTER_MAGIC
from tierdex.index_service.view.local_recovery import LocalMending
from tierdex.indexfile import layout
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.indexfile.source import Source
from tierdex.lifecycle.file_state import FileState

SLOTS, CAPACITY = 8, 5000
LOG = bytes(16)


def recycle(path, *, item_capacity=CAPACITY) -> ChainedFile:
    return ChainedFile.recycle(
        FILESYSTEM, path, uuid=UUID, schema=MESSAGE_SCHEMA, slot_count=SLOTS,
        item_capacity=item_capacity, created_ms=1_700_000_000_000,
    )  # fmt: skip


def put_some(file, first=0) -> None:
    for number, count in enumerate([1, 300, 2, 40]):
        names = ["hot", *(f"k{n}" for n in range(count))]
        part = make_part(names, topic=f"topic-{number}" * 5, first=first + number * 1000)
        file.append([part], Source(LOG, number + 1, number))


@pytest.fixture
def old(tmp_path):
    """The path of a sealed file that is needed no more."""
    file = make_file(tmp_path / "old", slot_count=SLOTS, item_capacity=CAPACITY, uuid=b"o" * 16)
    put_some(file, first=50_000)
    put_some(file, first=90_000)
    file.seal()
    file.close()
    return file.path


def test_recycled_file_is_a_new_one_byte_for_byte(old, tmp_path):
    files = [make_file(tmp_path / "new", slot_count=SLOTS, item_capacity=CAPACITY), recycle(old)]
    for file in files:
        assert (file.item_count, file.predecessor, file.check()) == (0, None, [])
        put_some(file)
        assert file.check() == []
    used = files[0]._used_bytes() + layout.BATCH_RECORD_BYTES
    new, recycled = (np.fromfile(file.path, np.uint8) for file in files)
    assert len(new) == len(recycled)
    assert np.array_equal(new[:used], recycled[:used])
    assert recycled[used : used + 4096].any(), "there is nothing of the old life: the test is weak"
    for file in files:
        file.seal()
        file.close()
    assert files[0].path.read_bytes() == files[1].path.read_bytes()


def test_batch_that_is_cut_off_a_recycled_file_stays_away(old):
    with closing(recycle(old)) as file:
        put_some(file)
    with closing(ChainedFile.recover(FILESYSTEM, old, lambda at: at.batch_count <= 2)) as cut:
        assert cut.item_count == 2 + 301
    with closing(ChainedFile.recover(FILESYSTEM, old)) as again:
        assert again.item_count == 2 + 301
        assert offsets_of(again, key("hot", "topic-2" * 5)) == []
        assert again.check() == []


def test_footer_of_the_old_life_does_not_make_it_look_sealed(old, tmp_path):
    with closing(make_file(tmp_path / "new", slot_count=SLOTS, item_capacity=CAPACITY)) as new:
        full_length = new.path.stat().st_size
    with old.open("r+b") as file:
        file.truncate(full_length + 9000)
        file.seek(full_length - FOOTER_BYTES)
        file.write(FOOTER_MAGIC)
    recycle(old).close()
    assert old.stat().st_size == full_length
    assert not LocalMending(FILESYSTEM).identify(FileState.UNSEALED, old).is_sealed


@pytest.mark.parametrize("item_capacity", [CAPACITY // 10, CAPACITY * 10])
def test_recycled_file_may_be_shorter_or_longer(old, item_capacity):
    with closing(recycle(old, item_capacity=item_capacity)) as file:
        put_some(file)
        assert file.check() == []
        assert file.path.stat().st_size == file.header.full_length
    with closing(ChainedFile.recover(FILESYSTEM, old)) as again:
        assert again.item_count == 347
        again.seal()


# -- who has the file -------------------------------------------------------------------------------

HOLDS_A_MAPPING = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.read()
"""


def test_file_that_somebody_has_is_left_alone(old, tmp_path):
    before = old.read_bytes()

    def is_refused() -> bool:
        with pytest.raises(BlockingIOError):
            recycle(old)
        return old.read_bytes() == before

    with old.open("rb") as file:
        assert is_refused()
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    assert is_refused()
    mapping.close()
    os.link(old, tmp_path / "backup")
    assert is_refused()
    (tmp_path / "backup").unlink()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_MAPPING, old], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"mapped\n"
        assert is_refused()
        other.stdin.close()
        other.wait()
    recycle(old).close()
    assert old.read_bytes() != before


ASKS_FOR_EVER = """
import sys
from pathlib import Path
from tierdex.filesystem import LocalFileSystem
asked = 0
while True:
    file = LocalFileSystem().open(Path(sys.argv[1]), writable=True)
    try:
        file.prove_alone()
    except BlockingIOError:
        pass
    file.close()
    asked += 1
    if asked % 1000 == 0:
        print(asked, flush=True)
"""


def test_somebody_who_opens_the_file_under_the_lease_ends_nothing(old):
    with subprocess.Popen(
        [sys.executable, "-c", ASKS_FOR_EVER, old], stdout=subprocess.PIPE
    ) as asking:
        asking.stdout.readline()
        refused = 0
        while refused < 20 and asking.poll() is None:
            try:
                os.close(os.open(old, os.O_RDONLY | os.O_NONBLOCK))
            except BlockingIOError:  # the lease was held: its holder got a signal
                refused += 1
        ended = asking.poll()
        asking.send_signal(signal.SIGKILL)
    assert ended is None, "a signal of the kernel ended it"
