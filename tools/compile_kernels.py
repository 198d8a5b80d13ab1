"""`python -m tools.compile_kernels`: compiles most kernels into numba's cache, by using each door once.

`make test` runs it beside the linters: in a fresh clone its processes would all compile the same kernels
otherwise, each for itself. The Dockerfile runs it for the users of the image (decision 0081). What it
leaves out is compiled at the first call.

Depends on what a user of the package imports.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tierdex
from tierdex.app.load.loader import Loader
from tierdex.app.load.plan import LoadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COUNT = 3000  # more than one page, chunk and block of the small files below
_SMALL: dict[str, Any] = {
    "slot_count": 1024, "item_capacity": 20_000, "disk_reserve_bytes": 0, "background": False,
}  # fmt: skip
_LOG: dict[str, Any] = {**_SMALL, "journal_bytes": 1 << 20, "max_message_bytes": 64 << 10}


def use_index(folder: Path) -> None:
    """Put, roll, compact, publish, merge; ask each form of file singly and in batches; verify, open again."""
    settings = {**_SMALL, "merge_min_files": 2, "node": "n"}
    for life in range(3):
        with tierdex.Index.open(folder / "data", **settings) as index:
            for durability in ("received", "os", "disk"):
                index.put(
                    topic="t", keys=["a", "b"], message_id="m", queue_id=0, offset=life, size=1,
                    timestamp=life, durability=durability,
                )  # fmt: skip
            _put_many(index, life * _COUNT)
            _ask(index)
            index.roll()
            _ask(index)
            index.run_compaction()
            _ask(index)
            for file in index.files():
                index.verify_file(file.file_id)
            _put_many(index, life)  # an unsealed file, for the opening that follows
    store = str(folder / "data" / "store")
    with tierdex.Index.open(store=store, read_only=True, background=False) as reader:
        _ask(reader)


def _put_many(index: tierdex.Index, first: int) -> None:
    numbers = np.arange(first, first + _COUNT)
    index.put_batch(
        topic=pa.array([f"t{n % 3}" for n in numbers.tolist()]),
        keys=pa.array([f"k{n % 500}" for n in numbers.tolist()]),
        message_id=pa.array([f"m{n}" for n in numbers.tolist()]),
        queue_id=numbers % 4, offset=numbers, size=1, timestamp=numbers,
    )  # fmt: skip
    index.put_batch(
        topic="t", keys=[f"k{n}" for n in numbers.tolist()], queue_id=numbers, offset=numbers, size=1,
        timestamp=numbers,
    )  # fmt: skip


def _ask(index: tierdex.Index) -> None:
    for asked in ({"key": "k1"}, {"message_id": "m1"}, {"key": "k1", "begin": 0, "end": 9}):
        index.query("t1", **asked, max_count=2, explain=True)
        page = index.query("t1", **asked, max_count=1)
        index.query("t1", **asked, max_count=1, cursor=page.next_cursor)
    lookups = pa.table(
        {"topic": [f"t{n % 3}" for n in range(_COUNT)], "key": [f"k{n}" for n in range(_COUNT)]}
    )
    index.query_batch_arrow(lookups)
    index.query_batch_arrow(lookups.set_column(0, "topic", pa.array(["t"] * _COUNT)), max_count=1)
    index.query_batch(lookups.slice(0, 50).to_pylist())


def use_log(folder: Path) -> None:
    """Append, read at each level and from each form of file, forget; open journals that are read again."""
    for life in range(2):
        with tierdex.MessageLog.open(folder / "log", node="n", **_LOG) as log:
            if life:
                _read(log)  # the opening has sealed the journal that was rolled
            for durability in ("received", "os", "disk"):
                log.append(topic="t", queue_id=0, body=b"body", keys=["a"], durability=durability)
                log.get("t", key="a")
            _append(log)
            log.append(topic="t", queue_id=0, body=b"staged", durability="received")
            _read(log)
            log.forget("t1", key="k10", now=True)
            log.roll()
            log.run_compaction()
            _read(log)
            log.forget("t1", key="k1")
            log.run_compaction()
            for file in log.files():
                log.verify_file(file.file_id)
            _append(log)
            log.roll()
            _append_to_many_queues(log)


def _append(log: tierdex.MessageLog) -> None:
    for _ in range(4):
        log.append_batch(
            topic=pa.array([f"t{n % 3}" for n in range(_COUNT)]),
            queue_id=[n % 4 for n in range(_COUNT)],
            body=[b"%d " % n * 20 for n in range(_COUNT)],
            keys=pa.array([f"k{n}" for n in range(_COUNT)]),
        )


def _append_to_many_queues(log: tierdex.MessageLog) -> None:
    log.append_batch(
        topic=pa.array([f"many{n % 100}" for n in range(_COUNT)]),
        queue_id=list(range(_COUNT)),
        body=[b"%d" % n for n in range(_COUNT)],
        headers=[[("name", b"%d" % n)] for n in range(_COUNT)],
    )


def _read(log: tierdex.MessageLog) -> None:
    for visible in ("received", "disk"):
        log.read("t", 0, 0, visible=visible)
        log.read("t1", 1, 0, visible=visible)
    log.read_arrow("t1", 1, 5)
    log.read_many([("t1", 1, 0), ("t2", 2, 3)])
    for message in log.reader("t1", 1):
        log.offset_at("t1", 1, message.timestamp)
        break
    log.get("t1", key="k1")
    log.offset_at("t1", 1, 0)


@contextmanager
def _served(*arguments: str) -> Iterator[tierdex.Client]:
    """Run `tierdex serve` during the scope; return a client of it once it serves."""
    program = [sys.executable, "-c", "from tierdex.app.cli import main; main()"]
    command = [*program, "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr
        assert said is not None
        url = next((line.split()[-1] for line in said if line.startswith("serving on ")), None)
        rest = Thread(target=said.read)  # or its writing would wait for a reader
        rest.start()
        try:
            if url is None:
                raise RuntimeError(f"the service ended with {process.wait()}")
            with tierdex.Client(url) as client:
                yield client
        finally:
            process.terminate()
            rest.join()


def use_service(folder: Path) -> None:
    """Ask services of an index and of a log by JSON and by Arrow."""
    place: dict[str, Any] = {"queue_id": 0, "size": 1, "timestamp": 1}
    with _served("--data", str(folder / "data")) as client:
        for durability in ("received", "os", "disk"):
            client.put(topic="t", key="a", message_id="m", offset=1, **place, durability=durability)
        client.put_batch(topic="t", keys=["a", "b"], offset=[1, 2], **place)
        client.query("t", key="a")
        client.query_batch([{"topic": "t", "key": "a"}, {"topic": "t", "key": "none"}])
        client.query_batch_arrow(pa.table({"topic": ["t"] * 9, "key": ["a"] * 9}))
    with _served("--data", str(folder / "log"), "--set", "log=true") as client:
        client.append(topic="t", queue_id=0, body=b"body", key="a")
        client.append_batch(topic="t", queue_id=0, body=[b"1", b"2"], keys=["a", "b"])
        client.get("t", key="a")
        client.read("t", 0, 0)


def follow_lines(folder: Path) -> None:
    """Index a file of JSON lines."""
    (folder / "lines").mkdir(parents=True)
    text = "".join(f'{{"id":"k{n}","at":{n}}}\n' for n in range(_COUNT))
    (folder / "lines" / "a.jsonl").write_text(text)
    with tierdex.Index.open(folder / "data", **_SMALL) as index:
        source = f"folder:{folder / 'lines'}"
        tierdex.follow(index, source, keys=["$.id"], time="$.at", once=True).run()


def load_quoted_text(folder: Path) -> None:
    """Index the rows of a CSV file whose fields are quoted."""
    folder.mkdir()
    (folder / "a.csv").write_text("id,n\n" + "".join(f'"k{n}","x, {n}"\n' for n in range(_COUNT)))
    with tierdex.Index.open(folder / "data", **_SMALL) as index:
        Loader(index).load(folder / "a.csv", LoadOptions(topic="t", keys=("id",)))


DOORS: dict[str, tuple[Callable[[Path], None], ...]] = {
    "index": (use_index, follow_lines, load_quoted_text),
    "log": (use_log,),
    "service": (use_service,),
}


def use_doors(*parts: str) -> None:
    """Use the doors of these parts in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            for door in DOORS[part]:
                door(Path(folder, door.__name__))


if __name__ == "__main__":
    use_doors(*DOORS)
