"""The OpenAPI description of the service, made of the routes' declarations and the models.

`python -m tools.generate_docs openapi` writes it to openapi.yaml. Pure. Depends on pydantic.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from tierdex import __version__
from tierdex.app.keys import Scope
from tierdex.app.schemas import MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.app.doors import RouteSpec

DESCRIPTION = (
    "Finds any message of a log by its key or message ID. Times are int64 milliseconds since the "
    "epoch, ranges inclusive; integers are exact 64-bit numbers. Every error is a problem "
    "(RFC 9457). Scopes are read < write < admin, each includes the ones before it; while a service "
    "has no keys it serves its own machine only, without asking for one."
)
_CONVERTOR = re.compile(r"\{(\w+):\w+\}")


def describe_service(routes: Sequence[RouteSpec]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for spec in routes:
        operation: dict[str, Any] = {
            "operationId": spec.handler.__name__,
            "summary": spec.summary,
            "description": (spec.handler.__doc__ or "").strip(),
            **spec.operation,
        }
        if spec.scope is not Scope.NONE:
            operation["security"] = [{"key": []}]
            operation["description"] += f" Scope: {spec.scope.name.lower()}."
        path = _CONVERTOR.sub(r"{\1}", spec.path)
        paths.setdefault(path, {})[spec.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tierdex", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "a key of `tierdex keys create --scope read|write|admin`",
                }
            },
        },
    }


@cache
def _schemas() -> dict[str, Any]:
    _, definitions = models_json_schema(
        [(model, "serialization" if _is_answer(model) else "validation") for model in MODELS],
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _is_answer(model: type) -> bool:
    return getattr(model, "model_config", {}).get("extra") != "forbid"
