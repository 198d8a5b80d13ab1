"""Every route, fed with what openapi.yaml allows and forbids.

No 5xx, no undocumented status or content type, no answer outside its schema, no accepted violation,
no route that answers without a key.
"""

from __future__ import annotations

from functools import cached_property
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

EXAMPLES = 25  # torture has more, with other seeds


class Service:
    """The application under test, opened by its first use: all who collect tests need the schema alone."""

    @cached_property
    def folder(self):
        return TemporaryDirectory()

    @cached_property
    def keys(self):
        path = Path(self.folder.name) / "keys.json"
        return KeyFile(LocalFileSystem(), path, clock=ManualClock(), ids=SeededIds(7))

    @cached_property
    def key(self):
        return self.keys.create(Scope.ADMIN)

    @cached_property
    def application(self):
        log = MessageLog.open(Path(self.folder.name) / "log", node="n", journal_bytes=16 << 20)
        limits = ServerSettings(log_requests=False, max_wait=0.001)
        return create_app(SmallIndex(), limits, self.keys, log=log)

    async def __call__(self, scope, receive, send):
        await self.application(scope, receive, send)


SERVICE = Service()
schema = schemathesis.openapi.from_path(Path(__file__).parents[3] / "openapi.yaml")
schema.app = SERVICE
schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def _as_it_is(context, value):
    return value if isinstance(value, bytes) else repr(value).encode()


@schema.auth()
class _WithKey:
    """Sends the key, unless a check is about what happens without."""

    def get(self, case, context):
        return SERVICE.key

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
