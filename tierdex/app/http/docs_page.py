"""The API's description as one plain HTML page, without scripts or other hosts.

Pure: an OpenAPI document in, HTML out.

Depends on nothing.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; font-size: 1.1rem } code, pre { font-family: ui-monospace, monospace }
pre { overflow: auto; padding: .75rem; border: 1px solid #8884; border-radius: .4rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-top: 1px solid #8884 }
.method { font-weight: 700; display: inline-block; min-width: 3.5rem }
"""


def render_docs(document: dict[str, Any]) -> str:
    """Return the page."""
    routes = [
        _operation(method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    schemas = [
        f"<h2 id='{escape(name)}'>{escape(name)}</h2>{_json(schema)}"
        for name, schema in document["components"]["schemas"].items()
    ]
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
        f"<h1>{title}</h1><p>{escape(document['info'].get('description', ''))}</p>"
        "<p>Also as <a href='openapi.json'>openapi.json</a>.</p>"
        f"{''.join(routes)}<h1>Schemas</h1>{''.join(schemas)}"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<h2><span class=method>{escape(method.upper())}</span> <code>{escape(path)}</code></h2>",
        f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>",
    ]
    rows = [
        (parameter["name"], _kind(parameter["schema"]), parameter.get("description", ""))
        for parameter in operation.get("parameters", [])
    ]
    parts.append(_table(("parameter", "type", "meaning"), rows))
    bodies = operation.get("requestBody", {}).get("content", {})
    parts.append(
        _table(("body", "schema"), [(kind, _kind(c["schema"])) for kind, c in bodies.items()])
    )
    answers = [
        (status, response.get("description", ""), ", ".join(
            _kind(content.get("schema", {})) for content in response.get("content", {}).values()
        ))
        for status, response in operation["responses"].items()
    ]  # fmt: skip
    parts.append(_table(("status", "meaning", "schema"), answers))
    return "".join(parts)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(text)}" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{_linked(text)}" for text in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def _linked(text: str) -> str:
    if text.startswith("#"):
        return f"<a href='{escape(text)}'>{escape(text[1:])}</a>"
    return escape(text)


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return "#" + str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(_kind(option).lstrip("#") for option in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return str(schema.get("format") or schema.get("type", "any"))


def _json(schema: dict[str, Any]) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
