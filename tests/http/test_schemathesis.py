"""Every route, fed with what openapi.yaml allows and forbids.

No 5xx, no undocumented status or content type, no answer outside its schema, no accepted violation,
no route that answers without a key.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.app.small_index import SmallIndex
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.app.keys import KeyFile
from tierdex.app.rights import Scope
from tierdex.clock import ManualClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.log_service.message_log import MessageLog

EXAMPLES = 60


FOLDER = TemporaryDirectory()  # the schema must be there when tests are collected
KEYS = KeyFile(
    LocalFileSystem(), Path(FOLDER.name) / "keys.json", clock=ManualClock(), ids=SeededIds(7)
)
KEY = KEYS.create(Scope.ADMIN)
LOG = MessageLog.open(Path(FOLDER.name) / "log", node="n", journal_bytes=16 << 20)
APP = create_app(SmallIndex(), ServerSettings(log_requests=False, max_wait=0.001), KEYS, log=LOG)
schema = schemathesis.openapi.from_dict(APP.openapi())
schema.app = APP
schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def _as_it_is(context, value):
    return value if isinstance(value, bytes) else repr(value).encode()


@schema.auth()
class _WithKey:
    """Sends the key, unless a check is about what happens without."""

    def get(self, case, context):
        return KEY

    def set(self, case, key, context):
        case.headers["Authorization"] = f"Bearer {key}"


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_route_keeps_its_description(case):
    # Rules between parameters (key or message ID) cannot be said in openapi.yaml, so that what it
    # allows may still be refused; what it forbids may not be accepted.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])
