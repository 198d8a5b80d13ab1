"""Many lookups in one call: checked, looked up together, answered as entries or as one Arrow table.

Loaded when the first batch comes, with pyarrow. Depends on arrow_table, local_table,
lookup_columns, query and indexfile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.index_service.batch.arrow_table import table_of
from tierdex.index_service.batch.local_table import local_table
from tierdex.index_service.batch.lookup_columns import (
    lookups_of_dicts,
    lookups_of_table,
    plain_lookups_of,
)
from tierdex.index_service.query.answers import answers_of
from tierdex.indexfile.plain_keys import NotPlainError

if TYPE_CHECKING:
    from tierdex.index_service.answer import Answer
    from tierdex.index_service.peers.peer_round import PeerRound
    from tierdex.index_service.query.executor import LookupExecutor
    from tierdex.index_service.requests.lookups import Lookups


def answer_batch(
    executor: LookupExecutor,
    lookups: object,
    *,
    max_count: int | None = None,
    fail: bool,
    peer_round: PeerRound | None = None,
) -> list[Answer]:
    """Return one answer a lookup (a dict), in order. `max_count` is that of lookups without one.

    Raises InvalidRequestError, and IncompleteAnswerError when `fail`.
    """
    checked = lookups_of_dicts(executor.settings, lookups, max_count)
    result = executor.run(checked, peer_round=peer_round)
    if fail:
        result.refuse_incomplete()
    answers = answers_of(result)
    executor.note_answered(result)
    return answers


def table_of_batch(
    executor: LookupExecutor,
    table: Any,
    *,
    max_count: int,
    fail: bool,
    peer_round: PeerRound | None = None,
) -> Any:
    """Return the entries of a table of lookups as a table, see `table_of`.

    Raises InvalidRequestError, and IncompleteAnswerError when `fail`.
    """
    found, lookups = _local_or_lookups(executor, table, max_count, at_once=False)
    if lookups is None or found is not None:
        return found
    result = executor.run(lookups, peer_round=peer_round)
    if fail:
        result.refuse_incomplete()
    answers = table_of(result)
    executor.note_answered(result)
    return answers


def table_at_once(executor: LookupExecutor, table: Any, *, max_count: int) -> Any | None:
    """Return the same when local files tell it quickly and nothing is missing, else None.

    Raises InvalidRequestError.
    """
    return _local_or_lookups(executor, table, max_count, at_once=True)[0]


def _local_or_lookups(
    executor: LookupExecutor, table: Any, max_count: int, *, at_once: bool
) -> tuple[Any | None, Lookups | None]:
    """Return the table that local files alone give (None: they do not), or what the general path needs."""
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise InvalidRequestError(
            "must be an Arrow table with the columns topic and key, or message_id; `query_batch` takes "
            "a list",
            field="lookups",
        )
    plain = plain_lookups_of(executor.settings, table, max_count)
    if plain is not None:
        with suppress(NotPlainError):  # some key is wrong, or beyond ASCII: each is looked at
            found = local_table(executor, plain, at_once=at_once)
            return (found, None) if found is not None else (None, plain.columns())
    lookups = lookups_of_table(executor.settings, table, max_count)
    return local_table(executor, lookups, at_once=at_once), lookups
