"""The address and the options of a source, as callers give them; no output contains their secrets.

An address is ``kind:rest``, with options behind a question mark: ``folder:/var/log?files=*.jsonl``,
``kafka://host:9092/orders?isolation.level=read_uncommitted``. Options may also come apart, and from a file of
``name=value`` lines, which is the place for passwords: `username` and `password` there are the login of any
source, and they are not listed among a machine's processes.

Depends on errors, filesystem and whole_file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tierdex.errors import InvalidRequestError
from tierdex.whole_file import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tierdex.filesystem import FileSystem

_SERVER: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_SECRET: Final = re.compile(
    r"password|secret|token|credential|passphrase|sasl\.jaas|oauthbearer\.config|\.key$|\.pem$",
    re.I,
)
# Characters that end a part of an address; within a name or a login they are written as %25, and so on.
_WRITTEN: Final = str.maketrans({char: f"%{ord(char):02X}" for char in "%?#@"})
_IN_LOGIN: Final = "in a login, / is written as %2F, ? as %3F, # as %23, [ as %5B, ] as %5D"


@dataclass(frozen=True)
class Address:
    """Where a log is: `hosts` as written ("a:1,b:2"), `path` without its first slash."""

    kind: str
    hosts: str
    path: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str, options: Mapping[str, str] | None = None) -> Address:
        """Return the address in `text`; `options` win over its own. Raises InvalidRequestError."""
        kind, colon, rest = text.partition(":")
        if not colon or not re.fullmatch(r"[a-z][a-z0-9+-]*", kind):
            raise InvalidRequestError(
                "is KIND:ADDRESS, as in kafka://127.0.0.1:9092/orders or folder:/var/log/orders",
                field="source",
            )
        if not rest.startswith("//"):
            path, _, query = rest.partition("?")
            return cls(kind, "", path, options={**_query(query), **(options or {})})
        try:
            parts = urlsplit(rest)
        except ValueError:  # its text tells what stands there
            raise InvalidRequestError(
                f"has an unmatched bracket: {_IN_LOGIN}", field="source"
            ) from None
        login, at, hosts = parts.netloc.rpartition("@")
        if parts.fragment or (not at and ("@" in parts.path or (not parts.path and "@" in rest))):
            raise InvalidRequestError(
                f"has a # or an @ where none can be: {_IN_LOGIN}; in a name, @ as %40",
                field="source",
            )
        user, _, password = login.partition(":")
        said = {**_query(parts.query), **(options or {})}
        return cls(
            kind,
            hosts,
            unquote(parts.path.removeprefix("/")),
            said.pop("username", "") or unquote(user) or None,
            said.pop("password", "") or unquote(password) or None,
            said,
        )

    @property
    def shown(self) -> str:
        """The address without login and options; it is an address again."""
        if not self.hosts:
            return f"{self.kind}:{self.path}"
        return f"{self.kind}://{self.hosts}/{self.path.translate(_WRITTEN)}"

    def servers(self, shape: str, default_port: int) -> list[str]:
        """Return each server as ``host:port``. Raises InvalidRequestError telling the `shape` of an address.

        A client library would try a server that cannot be for ever.
        """
        found = []
        for text in self.hosts.split(","):
            match = _SERVER.fullmatch(text)
            if match is None or not 0 < int(match["port"] or default_port) < 1 << 16:
                raise InvalidRequestError(f"is {shape}", field="source")
            found.append(f"{match['host']}:{int(match['port'] or default_port)}")
        return found

    @property
    def plain_options(self) -> dict[str, str]:
        """The options that are no secrets."""
        return {name: value for name, value in self.options.items() if not _SECRET.search(name)}

    @property
    def has_secrets(self) -> bool:
        """Whether a login or a secret option was given."""
        has_login = self.user is not None or self.password is not None
        return has_login or len(self.plain_options) < len(self.options)

    def without_secrets(self, text: str) -> str:
        """Return a text of a client library with every secret of this address blotted out."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def take(self, name: str, default: str = "") -> str:
        """Return an option and take it out, so that `refuse_rest` sees unknown ones."""
        return self.options.pop(name, default)

    def refuse_rest(self) -> None:
        """Raise InvalidRequestError for an option that was not taken."""
        for name in self.options:
            raise InvalidRequestError("there is no such option of this source", field=name)

    def _secrets(self) -> Iterator[str]:
        if self.password:
            yield self.password
        for name, value in self.options.items():
            if value and _SECRET.search(name):
                yield value


def read_options(filesystem: FileSystem, path: Path) -> dict[str, str]:
    """Return the ``name=value`` lines of a file; a line may be empty or begin with #. Raises OSError."""
    options = {}
    for number, line in enumerate(read_file(filesystem, path).decode().splitlines(), 1):
        name, equals, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith("#"):
            if not equals:
                raise InvalidRequestError("is not NAME=VALUE", field=f"{path}:{number}")
            options[name.strip()] = value.strip()
    return options


def _query(text: str) -> dict[str, str]:
    return dict(parse_qsl(text, keep_blank_values=True))
