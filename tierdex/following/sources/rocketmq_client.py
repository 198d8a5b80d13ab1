"""RocketMQ's remoting protocol, as much of it as a follower needs: routes, bounds of queues, pulls.

A frame is 4 bytes length | 1 byte kind of header (0: JSON), 3 bytes its length | header | body. Several
requests are sent at once, and answered in any order: `opaque` says which one an answer is of. A pull by queue
and offset joins no group and commits nothing.

Name servers know the brokers of a topic (its *route*). Of a broker's copies the master is asked; while there
is none, the copy of the least number, which may be behind.

Every request is signed when there is a login: HMAC-SHA1 over the values of its fields in the order of their
names, and its body.

Source: RocketMQ 5.3.3, RemotingCommand, RequestCode, AclClientRPCHook. Depends on connections, errors,
options and orjson.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from tierdex.connections import trusting
from tierdex.errors import NotFoundError, PermissionDeniedError, UnavailableError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from tierdex.following.sources.options import Address

PULL: Final = 11
MAX_OFFSET: Final = 30
MIN_OFFSET: Final = 31
_ROUTE: Final = 105
_BROKERS: Final = 106
_NO_BROKER: Final = b'"brokerAddrTable":{}'
FOUND: Final = 0
PULL_NOTHING: Final = (
    19,
    20,
    21,
)  # nothing new, ask again at once, the offset is outside of the queue
_NO_TOPIC: Final = 17
_NO_GROUP: Final = 26
_NO_PERMISSION: Final = 16
_REFUSED: Final = ("AclException", "AuthenticationException", "AuthorizationException")
_VERSION: Final = 453
_RESPONSE: Final = 1
_FRAME_MOST: Final = 128 << 20
_TIMEOUT_S: Final = 10.0
_READABLE: Final = 4
_MASTER: Final = 0


class Request(NamedTuple):
    """What a server is asked: a request code and its fields."""

    code: int
    fields: Mapping[str, Any]


class Answer(NamedTuple):
    """What it said: a response code, fields, a body, a remark for readers."""

    code: int
    fields: Mapping[str, str]
    body: bytes
    remark: str


@dataclass(frozen=True)
class Route:
    """The brokers of a topic. `copies` by name: address by number; `queues`: how many can be read."""

    cluster: str = ""
    copies: dict[str, dict[int, str]] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)
    is_static: bool = False


class _Connection:
    """A connection to one server. Raises OSError, EOFError, ValueError for what is no answer."""

    _opaque = itertools.count(1)

    def __init__(self, server: str, tls: ssl.SSLContext | None) -> None:
        host, _, port = server.rpartition(":")
        host = host.strip("[]")
        plain = socket.create_connection((host, int(port)), _TIMEOUT_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def ask(self, requests: Sequence[Request], sign: Signer | None) -> list[Answer]:
        """Send all requests, and return their answers in the order of the requests."""
        numbers = [next(self._opaque) for _ in requests]
        frames = [_frame(each, n, sign) for each, n in zip(requests, numbers, strict=True)]
        self._socket.sendall(b"".join(frames))
        waiting = set(numbers)
        answers: dict[int, Answer] = {}
        while waiting:
            number, answer = self._next()
            if number in waiting:  # others are the server's own questions
                waiting.remove(number)
                answers[number] = answer
        return [answers[number] for number in numbers]

    def _next(self) -> tuple[int, Answer]:
        while True:
            length = int.from_bytes(self._read(4), "big")
            if not 4 < length < _FRAME_MOST:
                raise ValueError("this is no RocketMQ server, or it speaks TLS: rocketmqs://")
            frame = self._read(length)
            size = int.from_bytes(frame[1:4], "big")
            header = orjson.loads(frame[4 : 4 + size])
            if header["flag"] & _RESPONSE:
                told = header.get("extFields") or {}
                remark = header.get("remark") or ""
                return header["opaque"], Answer(header["code"], told, frame[4 + size :], remark)

    def _read(self, count: int) -> bytes:
        data = bytearray(count)
        view, at = memoryview(data), 0
        while at < count:
            read = self._socket.recv_into(view[at:])
            if not read:
                raise EOFError("the server closed the connection")
            at += read
        return bytes(data)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()


@dataclass(frozen=True)
class Signer:
    """Signs requests as `user`, whose secret is `password`."""

    user: str
    password: str = field(repr=False)
    token: str = field(default="", repr=False)

    def signed(self, fields: Mapping[str, str]) -> dict[str, str]:
        named = {**fields, "AccessKey": self.user}
        if self.token:
            named["SecurityToken"] = self.token
        content = "".join(named[name] for name in sorted(named)).encode()
        digest = hmac.new(self.password.encode(), content, hashlib.sha1).digest()
        return {**named, "Signature": base64.b64encode(digest).decode()}


def _frame(request: Request, number: int, sign: Signer | None) -> bytes:
    fields = {name: str(value) for name, value in request.fields.items()}
    header = orjson.dumps(
        {
            "code": request.code, "language": "OTHER", "version": _VERSION, "opaque": number, "flag": 0,
            "extFields": fields if sign is None else sign.signed(fields),
            "serializeTypeCurrentRPC": "JSON",
        }
    )  # fmt: skip
    lengths = (4 + len(header), len(header))  # of all that comes, of the header
    return b"".join(each.to_bytes(4, "big") for each in lengths) + header


class Cluster:
    """The name servers of an address and the brokers of its topic. One thread at a time."""

    def __init__(self, address: Address, servers: Sequence[str], topic: str) -> None:
        self._address = address
        self._servers = list(servers)
        self._topic = topic
        trusted, token = address.take("ca_file"), address.take("security_token")
        is_encrypted = address.kind == "rocketmqs"
        self._tls = trusting(trusted or None, field="ca_file") if is_encrypted else None
        self._sign = (
            Signer(address.user, address.password or "", token)
            if address.user is not None
            else None
        )
        self._connections: dict[str, _Connection] = {}
        self.connects = 0  # how often a server was connected to: another one may stand there since
        self.route = Route()

    def look(self) -> Route:
        """Ask for the topic's route. Raises NotFoundError, UnavailableError, PermissionDeniedError."""
        wanted = Request(_ROUTE, {"topic": self._topic, "acceptStandardJsonOnly": "true"})
        for server in self._servers:
            try:
                (answer,) = self._ask(server, [wanted])
                break
            except UnavailableError as error:
                failure = error
        else:
            raise failure
        if answer.code == _NO_TOPIC:  # brokers tell their topics when they come up
            (told,) = self._ask(server, [Request(_BROKERS, {})])
            if _NO_BROKER in told.body:
                raise UnavailableError(self._said(server, "no broker is registered"))
        self._check(server, answer, (FOUND,))
        try:
            self.route = _route_of(orjson.loads(answer.body))
        except (ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"{self._address.shown}: no route: {error!r}") from error
        return self.route

    def is_master(self, broker: str) -> bool:
        """Whether the broker's master is asked, which has everything."""
        return _MASTER in self.route.copies.get(broker, {})

    def ask(
        self, broker: str, requests: Sequence[Request], codes: tuple[int, ...] = (FOUND,)
    ) -> list[Answer]:
        """Ask a broker. Raises UnavailableError and what an answer with another code means."""
        copies = self.route.copies.get(broker)
        if not copies:
            raise UnavailableError(f"{self._address.shown}: broker {broker} is not registered now")
        server = copies[min(copies)]
        answers = self._ask(server, requests)
        for answer in answers:
            self._check(server, answer, codes)
        return answers

    def close(self) -> None:
        """End every connection. Idempotent."""
        while self._connections:
            self._connections.popitem()[1].close()

    def _ask(self, server: str, requests: Sequence[Request]) -> list[Answer]:
        connection = self._connections.pop(server, None)
        try:
            if connection is None:
                connection = _Connection(server, self._tls)
                self.connects += 1
            answers = connection.ask(requests, self._sign)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            if connection is not None:
                connection.close()
            raise UnavailableError(self._said(server, str(error) or repr(error))) from None
        except BaseException:  # an interrupt: its answers would be taken for the next ones
            if connection is not None:
                connection.close()
            raise
        self._connections[server] = connection
        return answers

    def _check(self, server: str, answer: Answer, codes: tuple[int, ...]) -> None:
        if answer.code in codes:
            return
        said = self._said(server, answer.remark.splitlines()[0] if answer.remark else "refused")
        if answer.code == _NO_TOPIC:
            raise NotFoundError(f"{self._address.shown}: there is no such topic")
        if answer.code == _NO_GROUP:
            raise PermissionDeniedError(f"{said} (a group that exists: the option group)")
        if answer.code == _NO_PERMISSION or any(name in answer.remark for name in _REFUSED):
            raise PermissionDeniedError(said)
        raise UnavailableError(f"{said} (code {answer.code})")

    def _said(self, server: str, text: str) -> str:
        return f"{self._address.shown}: {server}: {self._address.without_secrets(text)}"


def _route_of(told: Mapping[str, Any]) -> Route:
    brokers = told.get("brokerDatas") or []
    copies = {
        each["brokerName"]: {int(n): at for n, at in each["brokerAddrs"].items()}
        for each in brokers
    }
    queues = {
        each["brokerName"]: int(each["readQueueNums"])
        for each in told.get("queueDatas") or []
        if int(each["perm"]) & _READABLE
    }
    cluster = min((each.get("cluster") or "" for each in brokers), default="")
    return Route(cluster, copies, queues, bool(told.get("topicQueueMappingByBroker")))
