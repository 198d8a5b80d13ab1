"""From the bytes of a message to what people read: compression, schemas, JSON, text.

::

    body --> uncompressed --> decoded by its schema --> JSON tree | text | binary --> masked

What cannot be undone is left as it is, and said: a message with bad bytes is shown as its bytes. Only where
masks reach into a body that cannot be read is the body withheld.

Depends on following, compression, json_text, masking, resolver_file, schemas and index_service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tierdex.following.value_block import BYTE_ORDER_MARK
from tierdex.index_service.shown_message import ShownMessage
from tierdex.resolving import json_text
from tierdex.resolving.compression import decompress, kind_of
from tierdex.resolving.masking import CannotMaskError, Masks

if TYPE_CHECKING:
    from tierdex.following.records import Record
    from tierdex.resolving.resolver_file import Showing
    from tierdex.resolving.schemas import Schemas

_NOTES_MOST: Final = 3


@dataclass(frozen=True)
class Readable:
    """A body on its way: `raw` as its log has it, `tree` where it is JSON, else `text` where it is text.

    `notes` are about fields of the tree that are shown in another form than their schema says.
    """

    raw: bytes | None
    form: Literal["json", "text", "binary"] | None = None
    tree: Any = None
    text: str | None = None
    decoded: tuple[str, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def json(self) -> str | None:
        """The body as JSON, where it is that."""
        return json_text.write(self.tree) if self.form == "json" else None


class Decoder:
    """Reads bodies of one topic. Safe to share between threads."""

    def __init__(self, showing: Showing, schemas: Schemas | None) -> None:
        self._compression = showing.compression
        self._schemas = schemas
        self.masks = Masks(showing.mask)

    def read(self, body: bytes | None, max_bytes: int) -> Readable:
        """Return the body decoded. Raises TooLargeError where it unfolds beyond `max_bytes`."""
        if body is None:
            return Readable(None)
        steps: list[str] = []
        problem = None
        plain = body
        kind = kind_of(body, self._compression)
        if kind is not None:
            try:
                plain = decompress(body, kind, max_bytes)
                steps.append(kind)
            except ValueError as error:
                problem = f"not decompressed: it {error}"
        if self._schemas is not None and problem is None:
            by_schema = self._schemas.read(plain)
            problem = by_schema.problem
            if by_schema.step is not None:
                steps.append(by_schema.step)
                plain = plain if by_schema.payload is None else by_schema.payload
            if by_schema.has_tree:
                return Readable(
                    body, "json", by_schema.tree, decoded=tuple(steps), notes=by_schema.notes
                )
        return _as_text(body, plain, tuple(steps), problem)

    def shown(self, record: Record, readable: Readable, where: str) -> ShownMessage:
        """Return the message as it may be seen."""
        headers = tuple((name, bytes(value)) for name, value in record.headers)
        common: dict[str, Any] = {
            "where": where,
            "timestamp": record.timestamp or None,
            "size": len(readable.raw or b""),
        }
        try:
            masked = self.masks.apply(
                record.key, headers, readable.raw, readable.tree, is_json=readable.form == "json"
            )
        except CannotMaskError:
            why = "the body cannot be read as JSON, so what is masked in it could not be found"
            if readable.problem is not None:
                why = f"{why} ({readable.problem})"
            return ShownMessage("withheld", why, **common)
        if masked.hides_body:
            readable = Readable(readable.raw, "text", text=json_text.MASK)
        elif readable.form == "json":
            readable = Readable(
                readable.raw,
                "json",
                masked.tree,
                decoded=readable.decoded,
                problem=self._reason(readable),
            )
        text = readable.json if readable.form == "json" else readable.text
        body = readable.raw
        if masked.hides_body or self.masks.reaches_into_body:  # the bytes as they are would tell it
            body = None if text is None else text.encode()
        return ShownMessage(
            "shown", readable.problem, key=masked.key, headers=masked.headers, body=body, text=text,
            form=readable.form, decoded=readable.decoded, masked=masked.places, **common,
        )  # fmt: skip

    def _reason(self, readable: Readable) -> str | None:
        """Return what is to be said of a message that is shown; of masked ones no place in them."""
        if readable.problem is not None or not readable.notes:
            return readable.problem
        if self.masks.reaches_into_body:
            return "parts of the body are not shown as their schema says"
        more = len(readable.notes) - _NOTES_MOST
        return "; ".join(readable.notes[:_NOTES_MOST]) + (f"; {more} more" if more > 0 else "")


def _as_text(raw: bytes, plain: bytes, steps: tuple[str, ...], problem: str | None) -> Readable:
    try:
        text = plain.removeprefix(BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError:
        return Readable(raw, "binary", decoded=steps, problem=problem)
    try:
        tree = json_text.parse(text)
        json_text.write(tree)
    except ValueError:
        return Readable(raw, "text", text=text, decoded=steps, problem=problem)
    return Readable(raw, "json", tree, decoded=steps, problem=problem)
