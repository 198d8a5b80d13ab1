"""Log files of few and of many queues published to radosgw: the requests that write, counted (L7).

    python -m benchmarks.tier_writes [--gib 1] [--body 200]

As many bytes go to 1, 1,000 and 1 M queues, in one journal each, which is published. Prints the PUTs and
POSTs of the publication (parts of 64 MiB, the object's begin and end, commit, hint) and the object's size.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from botocore.httpsession import URLLib3Session

from benchmarks.bucket import running_bucket
from tierdex import MessageLog

if TYPE_CHECKING:
    from tierdex.setting_keywords import SettingKeywords

MIB = 1 << 20
_AT_ONCE = 65_536
_QUEUES = (1, 1000, 1_000_000)
_SETTINGS: SettingKeywords = {"node": "n", "background": False, "merge_min_files": 99}


def fill(log: MessageLog, queues: int, size: int, body: int) -> int:
    """Append so many bytes to the queues, scattered; return how many messages."""
    source, count = np.random.default_rng(1), size // body
    for first in range(0, count, _AT_ONCE):
        rows = min(_AT_ONCE, count - first)
        ends = np.arange(0, rows * body + 1, body, dtype=np.int32)
        column = pa.BinaryArray.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(source.bytes(rows * body))]
        )
        queue_ids = (np.arange(first, first + rows) * 2_654_435_761 % queues).astype(np.int32)
        log.append_batch(topic="t", queue_id=queue_ids, body=column, durability="os")
    return count


def count_requests(sent: Counter[str]) -> None:
    """Count the requests of this process by their method from here on."""
    send = URLLib3Session.send

    def counted(session: URLLib3Session, request: Any) -> Any:
        sent[request.method] += 1
        return send(session, request)

    patch.object(URLLib3Session, "send", counted).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--body", type=int, default=200)
    given = parser.parse_args()
    logging.disable()
    size, sent = round(given.gib * 1024) * MIB, Counter[str]()
    count_requests(sent)
    with running_bucket() as url_of, tempfile.TemporaryDirectory() as folder:
        for queues in _QUEUES:
            data = Path(folder, str(queues))
            with MessageLog.open(
                data, store=url_of(str(queues)), journal_bytes=2 * size + 256 * MIB, **_SETTINGS
            ) as log:
                messages = fill(log, queues, size, given.body)
                log.flush("disk")
                log.run_compaction()
                sent.clear()
                began = time.process_time()
                log.roll()
                log.run_compaction()
                writes = {method: sent[method] for method in ("PUT", "POST")}
                cpu, (file,) = time.process_time() - began, log.files()
                assert file.state == "uploaded"
                print(
                    f"{queues:,} queues, {messages:,} messages: {writes}, "
                    f"an object of {file.bytes / MIB:,.0f} MiB, {cpu:.1f} s of CPU",
                    flush=True,
                )


if __name__ == "__main__":
    main()
