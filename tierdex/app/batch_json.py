"""Many lookups in JSON, answered through columns where that says the same.

A batch of plain lookups (all by topic and key, or all by message ID, nothing else) goes through the
index as one Arrow table, and the text of its answers is made of columns: no object a lookup, which
is a quarter of the time and nothing for the garbage collector. Whatever is not plain takes the
ordinary way: other fields, a wrong value (whose refusal the ordinary way words), a file that is
missing, a lookup with as many entries as it may have (its cursor is made there). A test holds both
ways to the same answers.

Depends on orjson, numpy, pyarrow, and on the index through its verbs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from tierdex.app.documents import answer_document
from tierdex.errors import InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    from tierdex.app.index_port import IndexPort

DEFAULT_MAX_COUNT = 64
_PLAIN = ({"topic", "key"}, {"message_id"}, {"topic", "message_id"})
_NUMBERS = ("queue_id", "offset", "size", "timestamp")
_PLACE = ("file_id", "state", "node")


class AnsweredLookups(NamedTuple):
    """`answers` in the order of the lookups, ready for orjson; `found` of them have entries."""

    answers: list[Any]
    found: int


def answer_lookups(
    index: IndexPort, lookups: list[Any], max_count: int | None, on_error: str
) -> AnsweredLookups:
    """Answer each lookup. Raises InvalidRequestError, IncompleteAnswerError."""
    plain = _answer_plain(index, lookups, max_count or DEFAULT_MAX_COUNT)
    return plain or _answer_any(index, lookups, max_count, on_error)


def _answer_any(
    index: IndexPort, lookups: list[Any], max_count: int | None, on_error: str
) -> AnsweredLookups:
    if max_count is not None:
        lookups = [
            {"max_count": max_count, **lookup} if type(lookup) is dict else lookup
            for lookup in lookups
        ]
    answers = index.query_batch(lookups, on_error=on_error)
    found = sum(bool(answer.entries) for answer in answers)
    return AnsweredLookups([answer_document(answer) for answer in answers], found)


def _answer_plain(index: IndexPort, lookups: list[Any], max_count: int) -> AnsweredLookups | None:
    """Return the answers, or None when the ordinary way must be taken."""
    table = _table_of(lookups)
    if table is None:
        return None
    try:
        entries = index.query_batch_arrow(table, max_count=max_count, on_error="fail")
    except (InvalidRequestError, UnavailableError):
        return None
    as_of = (entries.schema.metadata or {}).get(b"as_of")
    if as_of is None or entries.column("queue_id").null_count:  # locations of another schema
        return None
    rows = entries.column("lookup").to_numpy()
    counts = np.bincount(rows, minlength=len(lookups))
    answers = _fragments(_entry_texts(entries), rows, counts, int(as_of))
    full = np.flatnonzero(counts >= max_count).tolist()
    again = [lookups[number] for number in full]
    for number, answer in zip(
        full, _answer_any(index, again, max_count, "partial").answers, strict=True
    ):
        answers[number] = answer
    return AnsweredLookups(answers, int(np.count_nonzero(counts)))


def _table_of(lookups: list[Any]) -> Any:
    """Return plain lookups as a table; None when they are not plain."""
    if not lookups or set(map(type, lookups)) != {dict} or set(lookups[0]) not in _PLAIN:
        return None
    names = list(lookups[0])
    if set(map(len, lookups)) != {len(names)}:
        return None
    columns: dict[str, Any] = {}
    for name in names:
        try:
            values = [lookup[name] for lookup in lookups]
        except KeyError:  # as many names, but others
            return None
        if set(map(type, values)) != {str}:
            return None
        if name == "topic" and values.count(values[0]) == len(values):
            zeros = np.zeros(len(values), np.int32)
            columns[name] = pa.DictionaryArray.from_arrays(zeros, [values[0]])
        else:
            columns[name] = pa.array(values, pa.string())
    return pa.table(columns)


def _entry_texts(entries: Any) -> list[str]:
    """Return each row of the table as the JSON text of an entry.

    Topic and place (file, state, node) have few distinct values: their text is made once for each.
    """
    numbers = [entries.column(name).to_numpy().tolist() for name in _NUMBERS]
    heads = _texts_of(entries, ("topic",), '{{"topic":{},"queue_id":')
    ends = _texts_of(entries, _PLACE, ',"file_id":{},"state":{},"node":{}}}')
    return [
        f'{head}{queue_id},"offset":{offset},"size":{size},"timestamp":{timestamp}{end}'
        for head, queue_id, offset, size, timestamp, end in zip(heads, *numbers, ends, strict=True)
    ]


def _texts_of(entries: Any, names: tuple[str, ...], form: str) -> list[str]:
    """Return `form` filled with each row's values of some text columns."""
    code: Any = 0
    columns: list[list[str]] = []
    for name in names:
        column = _one_dictionary(entries.column(name))
        columns.append([orjson.dumps(text).decode() for text in column.dictionary.to_pylist()])
        code = code * len(columns[-1]) + column.indices.to_numpy().astype(np.int64)
    distinct, index = np.unique(code, return_inverse=True)
    texts = []
    for number in distinct.tolist():
        values: list[str] = []
        for column_texts in reversed(columns):
            number, position = divmod(number, len(column_texts))
            values.insert(0, column_texts[position])
        texts.append(form.format(*values))
    return [texts[position] for position in index.tolist()]


def _one_dictionary(column: Any) -> Any:
    merged = column.combine_chunks()
    if isinstance(merged, pa.ChunkedArray):
        merged = pa.concat_arrays(merged.chunks) if merged.num_chunks else pa.array([], pa.string())
    return merged if pa.types.is_dictionary(merged.type) else merged.dictionary_encode()


def _fragments(texts: list[str], rows: np.ndarray, counts: np.ndarray, as_of: int) -> list[Any]:
    """Return each lookup's answer as JSON; `rows` are the rising lookup numbers of `texts`."""
    tail = f'],"complete":true,"missing":[],"next_cursor":null,"as_of":{as_of}}}'
    answers: list[Any] = [orjson.Fragment(f'{{"entries":[{tail}')] * len(counts)
    if counts.max() <= 1:
        for number, text in zip(rows.tolist(), texts, strict=True):
            answers[number] = orjson.Fragment(f'{{"entries":[{text}{tail}')
        return answers
    ends = np.cumsum(counts)
    found = np.flatnonzero(counts)
    spans = zip(found.tolist(), (ends - counts)[found].tolist(), ends[found].tolist(), strict=True)
    for number, begin, end in spans:
        answers[number] = orjson.Fragment(f'{{"entries":[{",".join(texts[begin:end])}{tail}')
    return answers
