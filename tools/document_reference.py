"""docs/reference.md: settings, errors and metrics, generated from the code that has them."""

from __future__ import annotations

import inspect
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierdex import errors
from tierdex.app.http.metrics import Metrics
from tierdex.app.http.problems import kind_of
from tierdex.app.http.server_settings import ServerSettings
from tierdex.log_service.message_log import MessageLog
from tierdex.resolving.show_settings import ShowSettings
from tierdex.settings import Settings
from tools.generated_parts import fill, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_settings import BaseSettings

_BANNER = re.compile(r"^    # -- (?P<name>\w[\w ]*).*-$|^    (?P<field>\w+): ", re.MULTILINE)
_BRANCH = re.compile(
    r"^\s*[│ ]*[├└]── (?P<name>\w+)(?:\([\w, ]+\))?\s+(?P<remedy>\S.*)$", re.MULTILINE
)
_OF_INDEX, _OF_LOG = "tierdex_compaction_", "tierdex_log_compaction_"
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def generate(root: Path) -> dict[Path, str]:
    """Return the page with today's tables."""
    path = root / "docs" / "reference.md"
    parts = {
        "settings": settings_tables(Settings),
        "server-settings": settings_tables(ServerSettings),
        "show-settings": settings_tables(ShowSettings),
        "errors": errors_table(),
        "metrics": metrics_table(),
    }
    return {path: fill(path.read_text(), parts)}


def settings_tables(model: type[BaseSettings]) -> str:
    """Return a table for each banner in the model's source."""
    groups: list[tuple[str, list[list[str]]]] = []
    for match in _BANNER.finditer(inspect.getsource(model)):
        if match["name"]:
            groups.append((match["name"].strip(), []))
        elif match["field"] in model.model_fields:
            if not groups:
                groups.append(("", []))
            field = model.model_fields[match["field"]]
            default = field.get_default(call_default_factory=True)
            words = (field.json_schema_extra or {}).get("default_in_words")
            value = words or _value(match["field"], default)
            row = [f"`{match['field']}`", value, field.description or ""]
            groups[-1][1].append(row)
    return "\n".join(
        (f"**{name.capitalize()}**\n\n" if name else "")
        + table(("setting", "default", "meaning"), rows)
        for name, rows in groups
    )


def _value(name: str, value: Any) -> str:
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        for size, unit in _UNITS:
            if value and value % size == 0:
                return f"{value // size} {unit}"
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 and name != "port" else str(value)
    if isinstance(value, float):
        return f"{value:.7f}".rstrip("0").rstrip(".")
    return f"`{value}`"


def errors_table() -> str:
    """Return class, HTTP status and problem type, and the remedy that the tree in errors.py names."""
    return table(("error", "HTTP", "problem", "what to do"), _error_rows())


def _error_rows() -> Iterator[list[str]]:
    for match in _BRANCH.finditer(errors.__doc__ or ""):
        error = getattr(errors, match["name"])
        arguments = {"reason": ""} if issubclass(error, errors.CorruptFileError) else {}
        kind = kind_of(error("", **arguments))
        remedy = match["remedy"].removeprefix("... ")
        yield [f"`{error.__name__}`", str(kind.status), f"`{kind.name}`", remedy]


def metrics_table() -> str:
    """Return every family that a service over an empty message log and its index shows."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MessageLog.open(Path(folder), background=False) as log,
    ):
        families = list(Metrics(lambda: log.index, "0", log).registry.collect())
    found = {
        f"{family.name}{'_total' if family.type == 'counter' else ''}": family
        for family in families
        if family.name.startswith("tierdex_")
    }
    rows = []
    for name, family in found.items():
        twin = name.replace(_OF_INDEX, _OF_LOG) if _OF_INDEX in name else ""
        if name.startswith(_OF_LOG) and name.replace(_OF_LOG, _OF_INDEX) in found:
            continue  # stands beside the one of the index
        also = f"; of a log `{twin}`" if twin in found else ""
        rows.append([f"`{name}`", family.type, family.documentation + also])
    return table(("metric", "type", "meaning"), rows)
