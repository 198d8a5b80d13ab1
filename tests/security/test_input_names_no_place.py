"""Nothing in a request names a path, a URL or a bucket; nothing in a file is code."""

from __future__ import annotations

import ast
import re
from urllib.parse import quote

import orjson
import pytest

from tests.app.conftest import ENTRY, Caller
from tests.app.small_index import SmallIndex
from tests.test_tidy import MODULES, tree_of

PLACE = re.compile(r"path|url|uri|bucket|folder|file_?name|directory|endpoint|host|store", re.I)
# Modules whose pickles and eval would run what a stranger wrote.
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def given_names(document):
    """Yield every name that a request may carry: parameters and fields of bodies."""
    schemas = document["components"]["schemas"]

    def fields(schema):
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
        yield from schema.get("properties", {})
        for inner in schema.get("properties", {}).values():
            yield from fields(inner)
        for inner in [schema.get("items", {}), *schema.get("anyOf", []), *schema.get("oneOf", [])]:
            if inner:
                yield from fields(inner)

    for operations in document["paths"].values():
        for operation in operations.values():
            yield from (parameter["name"] for parameter in operation.get("parameters", []))
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield from fields(content["schema"])


def test_no_name_of_a_request_is_a_place():
    names = set(given_names(Caller(SmallIndex()).app.openapi()))
    assert {"topic", "key", "offset", "file_id", "before", "lookups"} <= names
    places = {name for name in names if PLACE.search(name)}
    assert places <= {"buckets"}  # the bars of a histogram


PLACES = ["/etc/passwd", "../../keys.json", "s3://bucket/x", "file:///etc/passwd", "http://evil/"]


@pytest.mark.parametrize("place", PLACES)
def test_place_given_as_a_value_is_only_a_value(place):
    """A key may look like a path: it is looked up, and nothing is opened."""
    caller = Caller(SmallIndex())
    entry = {**ENTRY, "keys": [place], "message_id": place}
    response = caller.post("/v1/entries", json={"entries": [entry]})
    assert response.status_code == 200
    found = caller.get("/v1/entries", params={"topic": "orders", "key": place}).json()["entries"]
    assert len(found) == 1
    file = caller.get(f"/v1/admin/files/{quote(place, safe='')}")
    assert file.status_code in (400, 404)
    for name in ("store", "data", "path", "rocketmq", "url", "node"):
        query = {"topic": "orders", "key": "k", name: place}
        assert caller.get("/v1/entries", params=query).status_code == 400
        body = orjson.dumps({"entries": [{**ENTRY, name: place}]})
        refused = caller.post(
            "/v1/entries", content=body, headers={"content-type": "application/json"}
        )
        assert refused.status_code == 400


def what_runs_what_it_reads(tree):
    """Yield each use, in a module, of what would run what a stranger wrote."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from {name.name.split(".")[0] for name in node.names} & FORBIDDEN_IMPORTS
        elif isinstance(node, ast.ImportFrom):
            yield from {(node.module or "").split(".")[0]} & FORBIDDEN_IMPORTS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from {node.func.id} & FORBIDDEN_CALLS
        elif isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
            if not isinstance(node.value, ast.Constant) or node.value.value is not False:
                yield node.arg
        elif isinstance(node, ast.Attribute) and node.attr in ("read_pickle", "to_pickle"):
            yield node.attr


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "eval(text)",
        "np.load(path, allow_pickle=True)",
        "run(command, shell=shell)",
        "pd.read_pickle(path)",
    ],
)
def test_what_runs_what_it_reads_is_seen(text):
    assert len(list(what_runs_what_it_reads(ast.parse(text)))) == 1


def test_no_module_runs_what_it_reads():
    found = {str(path): list(what_runs_what_it_reads(tree_of(path))) for path in MODULES}
    assert {path: uses for path, uses in found.items() if uses} == {}
