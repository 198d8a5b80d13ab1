"""A JetStream stream of NATS as a source: one partition, whose offsets are the stream's sequence numbers.

A message's subject is its key; its headers are headers; its time is the server's. Messages are pulled by an
ephemeral consumer that acknowledges nothing and keeps no state of ours.

The client is asynchronous. Its event loop belongs to this source and runs only inside its calls, in the
thread that makes them; between two calls the server keeps what was asked for.

Depends on errors, options, records, text_times, nats, numpy and pyarrow.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

import nats.errors
import nats.js.errors
import numpy as np
import pyarrow as pa
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tierdex.errors import (
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from tierdex.following.records import Bounds, Record, RecordBatch
from tierdex.text_times import readable_times

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.following.records import Headers, Parts
    from tierdex.following.sources.options import Address

_SHAPE: Final = "nats://HOST:PORT/STREAM"
_PORT: Final = 4222
_STREAM: Final = re.compile(r"[^\s.*>/\\]+")
_ASK_S: Final = 5.0
_PULL_MAX: Final = 2_000
_IDLE_S: Final = 3600.0  # after which the server forgets the consumer of a reader that went away
_STATUS: Final = "Status"  # headers of NATS's own lines


class JetStreamSource:
    """Follows one stream. See `Source`."""

    has_times = True
    is_dense = True

    def __init__(self, address: Address, filesystem: FileSystem, clock: Clock) -> None:
        """`address` is ``nats://host:port,host:port/STREAM``; options: `credentials` (a file), `token`."""
        servers = address.servers(_SHAPE, _PORT)
        if not _STREAM.fullmatch(address.path):  # others would name another subject of the API
            raise InvalidRequestError(f"is {_SHAPE}", field="source")
        self._address = address
        self.topic = address.path
        self.name = address.shown
        credentials, token = address.take("credentials"), address.take("token")
        address.refuse_rest()
        self._options: dict[str, Any] = {
            "servers": [f"nats://{server}" for server in servers],
            "user": address.user,
            "password": address.password,
            "token": token or None,
            "user_credentials": credentials or None,
            "connect_timeout": _ASK_S,
            "allow_reconnect": False,  # the follower begins anew
            "max_reconnect_attempts": 1,  # of each server; with 0 the client tries for ever, and says nothing
            "reconnect_time_wait": 0,
            "error_cb": self._note_error,
        }
        self._refusal: Exception | None = None  # of what the running call asked for
        self._failure: Exception | None = None  # why no server could be connected to
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Any = None
        self._pull: Any = None
        self._next = 0
        self._received = 0  # of the consumer
        self._end = 0  # as of the last look

    def identity(self) -> str:
        return str(self._stream()["created"])

    def partitions(self) -> Sequence[int]:
        self._stream()
        return [0]

    def name_of(self, partition: int) -> str:
        return self.topic

    def place_of(self, partition: int, offset: int) -> str:
        return f"{self.name_of(partition)}, sequence {offset}"

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        state = self._stream()["state"]
        self._end = state["last_seq"] + 1
        return {0: Bounds(state["first_seq"], state["last_seq"] + 1)} if 0 in positions else {}

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        self._pull = None
        if 0 in positions:
            self._next, self._received = positions[0], 0
            self._pull = self._ask(self._subscribe(max(1, positions[0])))

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        if self._pull is None:
            return None
        try:
            pulled = self._pull.fetch(min(max_records, _PULL_MAX), timeout=timeout_s)
            messages = self._ask(pulled)
        except _NothingCame:
            told = self._ask(
                self._pull.consumer_info()
            )  # a server that began anew has forgotten it
            return self._behind_deleted(told)
        return self._batch(messages)

    def _behind_deleted(self, told: Any) -> RecordBatch | None:
        """Pass what was deleted: all was delivered, and we have read what was."""
        is_read = told.num_pending == 0 and told.delivered.consumer_seq == self._received
        if not is_read or self._next >= self._end:
            return None
        self._next = self._end
        return RecordBatch.without_records({0: self._next})

    def fetch(self, partition: int, offset: int) -> Record | None:
        if partition != 0 or offset < 1:
            return None
        try:
            said = self._request(f"STREAM.MSG.GET.{self.topic}", {"seq": offset})
        except NotFoundError:
            self._stream()  # the stream is there, so it is the message that is not
            return None
        message = said["message"]
        stamps, _ = readable_times(pa.array([message["time"]]), "UTC")
        value = b64decode(message.get("data", ""))
        headers = _parse_headers(b64decode(message.get("hdrs", "")))
        return Record(0, offset, int(stamps[0]), message["subject"].encode(), value, headers)

    def close(self) -> None:
        if self._loop is None:
            return
        self._drop_connection()
        self._loop.close()
        self._loop = None

    # -- the client ----------------------------------------------------------------------------------

    def _batch(self, messages: list[Any]) -> RecordBatch | None:
        # $JS.ACK.<stream>.<consumer>.<delivered>.<stream sequence>.<consumer sequence>.<ns>.<pending>,
        # with a domain and an account behind ACK on newer servers: counted from the end
        told = [message.reply.split(".") for message in messages]
        shift = [0 if len(parts) == 9 else -1 - (len(parts) - 12) for parts in told]
        offsets = np.fromiter((int(p[-4 + s]) for p, s in zip(told, shift, strict=True)), np.int64)
        stamps = np.fromiter((int(p[-2 + s]) for p, s in zip(told, shift, strict=True)), np.int64)
        self._next = int(offsets[-1]) + 1
        self._received += len(messages)
        values = [message.data for message in messages]
        return RecordBatch(
            np.zeros(len(messages), np.int32),
            offsets,
            np.fromiter(map(len, values), np.uint32, len(values)),
            stamps // 1_000_000,
            {0: self._next},
            [message.subject.encode() for message in messages],
            values,
            [_headers(message.headers) for message in messages],
        )

    async def _subscribe(self, position: int) -> Any:
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=position,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=_IDLE_S,
        )
        context = self._connection.jetstream(timeout=_ASK_S)
        return await context.pull_subscribe("", stream=self.topic, config=config)

    def _stream(self) -> dict[str, Any]:
        return self._request(f"STREAM.INFO.{self.topic}", {})

    def _request(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the API of JetStream; its errors become ours."""
        answer = self._ask(self._asked(f"$JS.API.{verb}", json.dumps(body).encode()))
        said: dict[str, Any] = json.loads(answer.data)
        if "error" in said:
            error = said["error"]
            text = f"{self.name}: {error.get('description')}"
            raise NotFoundError(text) if error.get("code") == 404 else UnavailableError(text)
        return said

    async def _asked(self, subject: str, body: bytes) -> Any:
        return await self._connection.request(subject, body, timeout=_ASK_S)

    def _ask(self, call: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._refusal = self._failure = None
        try:
            if self._connection is None or not self._connection.is_connected:
                self._drop_connection()
                self._connection = self._loop.run_until_complete(self._connected())
            return self._loop.run_until_complete(call)
        except nats.js.errors.NotFoundError as error:
            raise UnavailableError(
                self._said(error)
            ) from None  # the consumer: `open` makes another
        except (nats.errors.TimeoutError, TimeoutError) as error:
            if self._refusal is not None:  # told apart from the answer, which never comes
                raise PermissionDeniedError(self._said(self._refusal)) from None
            if self._connection is not None and self._connection.is_connected:
                raise _NothingCame(self._said(error)) from None
            raise UnavailableError(self._said(error)) from None
        except nats.errors.NoRespondersError:
            raise UnavailableError(f"{self.name}: the server has no JetStream") from None
        except (nats.errors.Error, nats.js.errors.APIError, OSError) as error:
            self._drop_connection()
            is_away = isinstance(error, nats.errors.NoServersError)
            said = self._said(self._failure if is_away and self._failure else error)
            if "uthorization" in said or "uthentication" in said or "ermissions" in said:
                raise PermissionDeniedError(said) from None
            raise UnavailableError(said) from None
        finally:
            call.close()

    async def _connected(self) -> Client:
        client = Client()
        try:
            await client.connect(**self._options)
        except BaseException:
            await client.close()  # a server that refuses us has its socket open
            raise
        return client

    def _drop_connection(self) -> None:
        if self._connection is not None and self._loop is not None:
            dropped, self._connection = self._connection, None
            self._loop.run_until_complete(dropped.close())

    async def _note_error(self, error: Exception) -> None:
        if "ermissions" in str(error):
            self._refusal = error
        else:  # of a live connection it comes again as the error of a call
            self._failure = error

    def _said(self, error: BaseException) -> str:
        return f"{self.name}: {self._address.without_secrets(str(error) or type(error).__name__)}"


class _NothingCame(UnavailableError):
    """A pull or a request that was not answered in time, on a connection that lives."""


def _headers(headers: Mapping[str, str] | None) -> Headers | None:
    if not headers:
        return None
    return [(name, value.encode()) for name, value in headers.items() if name != _STATUS]


def _parse_headers(data: bytes) -> Headers:
    """Return the headers of NATS's own form: a line of its version, then ``name: value`` lines."""
    lines = data.decode(errors="surrogateescape").split("\r\n")[1:]
    pairs = [line.partition(":") for line in lines if line]
    return [
        (name.strip(), value.strip().encode(errors="surrogateescape")) for name, _, value in pairs
    ]
