"""A user's program over what openapi-python-client made of openapi.yaml.

It imports every module, then puts, pages, and asks for many. Its last line is JSON.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import made
from made.api.entries import get_entries, look_many_up, put_entries
from made.client import Client
from made.models import (
    Answer,
    EntriesToPut,
    EntryToPut,
    Explain,
    Lookup,
    Lookups,
    PutEntriesDurability,
)

modules = [info.name for info in pkgutil.walk_packages(made.__path__, "made.")]
for name in modules:
    importlib.import_module(name)
routes = [name for name in modules if name.startswith("made.api.") and name.count(".") == 3]

client = Client(sys.argv[1])
place = {"topic": "orders", "queue_id": 0, "size": 512, "timestamp": "2023-11-14T22:13:20Z"}
entries = [EntryToPut(**place, offset=offset, keys=["py-1"]) for offset in (1, 2, 3)]
put = put_entries.sync(
    client=client, body=EntriesToPut(entries), durability=PutEntriesDurability.DISK
)
offsets, cursor, files = [], None, 0
while True:
    more = {} if cursor is None else {"cursor": cursor}
    answer = get_entries.sync(
        client=client, topic="orders", key="py-1", max_count=1, explain=True, **more
    )
    assert isinstance(answer, Answer), answer
    assert isinstance(answer.explain, Explain)
    offsets += [entry.offset for entry in answer.entries]
    files += answer.explain.files_considered
    cursor = answer.next_cursor
    if cursor is None:
        break
lookups = Lookups([Lookup(topic="orders", key="py-1"), Lookup(message_id="absent")])
many = look_many_up.sync(client=client, body=lookups)
counts = [len(answer.entries) for answer in many.answers]
print(json.dumps([len(routes), put.accepted, offsets, files > 0, counts]))
