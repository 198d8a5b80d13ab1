"""What an Arrow table of answers says about those that are not complete: metadata of its schema.

`missing` is a JSON array of `{"file": …, "reason": …, "lookups": [numbers] or null}`, null for every
lookup. A table without it is complete. It travels with the table, over HTTP too.

Depends on collected, answer; pyarrow's tables, which are handed in.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tierdex.index_service.answer import Answer, Missing
    from tierdex.index_service.batch.matches import FileMissing

MISSING = "missing"


def with_missing(
    table: Any,
    everywhere: Iterable[Missing],
    of_files: Iterable[FileMissing] = (),
    exact: Mapping[int, Answer] | None = None,
) -> Any:
    """Return the table, saying what is missing: from all lookups, from some, and from single ones.

    `exact` are lookups that were answered again by themselves: nothing of a file concerns them.
    """
    told = list(_rows(everywhere, of_files, exact or {}))
    if not told:
        return table
    metadata = {**(table.schema.metadata or {}), MISSING: json.dumps(told, separators=(",", ":"))}
    return table.replace_schema_metadata(metadata)


def _rows(
    everywhere: Iterable[Missing], of_files: Iterable[FileMissing], exact: Mapping[int, Answer]
) -> Iterator[dict[str, Any]]:
    all_missing = list(dict.fromkeys(everywhere))
    for file, reason in all_missing:
        yield {"file": file, "reason": reason, "lookups": None}
    again = np.fromiter(exact, np.int64, len(exact))
    for (file, reason), lookups in of_files:
        concerned = np.setdiff1d(lookups, again)
        if len(concerned):
            yield {"file": file, "reason": reason, "lookups": concerned.tolist()}
    singles: dict[Missing, list[int]] = {}
    for number, answer in exact.items():
        for missing in dict.fromkeys(answer.missing):
            if missing not in all_missing:
                singles.setdefault(missing, []).append(number)
    for (file, reason), numbers in singles.items():
        yield {"file": file, "reason": reason, "lookups": numbers}
