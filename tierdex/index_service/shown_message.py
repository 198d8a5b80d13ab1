"""`ShownMessage`: the message that an entry points at, or why there is none; as an object and as JSON.

JSON has text, so a message says how its bytes are written there: `text` (UTF-8) or `base64`.

Depends on nothing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Outcome = Literal[
    "shown", "gone", "mismatch", "unavailable", "too_large", "withheld", "unresolved"
]  # fmt: skip
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "shown", "gone", "mismatch", "unavailable", "too_large", "withheld", "unresolved",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message, fetched from where its entry says that it is. Times int64 ms, sizes bytes.

    `outcome`: ``shown``; ``gone`` (its log has it no more); ``mismatch`` (what is there now has another
    key); ``unavailable`` (its log does not answer, or not in time); ``too_large``; ``withheld`` (it could
    not be masked); ``unresolved`` (no resolver knows the topic). `reason` says more.

    `body` is None for every outcome but ``shown``, and for a record without a value. `text` is the body as
    people read it: decoded JSON set out in lines, or plain text; None where it is neither. `decoded` names
    what was undone ("gzip", "avro schema 7"), `masked` the places that were replaced by ``***``.
    """

    outcome: Outcome
    reason: str | None = None
    where: str | None = None
    timestamp: int | None = None
    size: int | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    body: bytes | None = None
    text: str | None = None
    form: Literal["json", "text", "binary"] | None = None
    decoded: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    cost: tuple[int, int] = (0, 0)  # requests and bytes; `explain` has those of all messages

    def to_dict(self) -> dict[str, Any]:
        """Return the message for JSON."""
        values = [self.key or b"", self.body or b"", *(value for _, value in self.headers)]
        encoding, texts = written(values)
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "where": self.where,
            "timestamp": self.timestamp,
            "size": self.size,
            "encoding": encoding,
            "key": None if self.key is None else texts[0],
            "headers": [
                {"name": name, "value": text}
                for (name, _), text in zip(self.headers, texts[2:], strict=True)
            ],
            "body": None if self.body is None else texts[1],
            "form": self.form,
            "text": self.text,
            "decoded": list(self.decoded),
            "masked": list(self.masked),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> ShownMessage:
        """Return the message that `to_dict` wrote."""

        def read(text: str) -> bytes:
            return b64decode(text) if document["encoding"] == "base64" else text.encode()

        def or_none(text: str | None) -> bytes | None:
            return None if text is None else read(text)

        return cls(
            document["outcome"], document["reason"], document["where"], document["timestamp"],
            document["size"], or_none(document["key"]),
            tuple((each["name"], read(each["value"])) for each in document["headers"]),
            or_none(document["body"]), document["text"], document["form"],
            tuple(document["decoded"]), tuple(document["masked"]),
        )  # fmt: skip


def written(values: Sequence[bytes], encoding: str = "text") -> tuple[str, list[str]]:
    """Return how bytes are written in JSON, and their texts: base64 for all where one is not UTF-8."""
    if encoding == "text":
        with suppress(UnicodeDecodeError):  # base64 can say it
            return "text", [value.decode() for value in values]
    return "base64", [b64encode(value).decode() for value in values]
