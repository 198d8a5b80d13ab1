from __future__ import annotations

import yaml

from tests.app.conftest import ENTRY
from tests.security.test_scopes import MATRIX
from tierdex.app.http.parameters import EntriesQuery
from tierdex.app.keys import Scope
from tools import generate_docs


def test_openapi_yaml_says_what_the_service_says():
    for path, text in generate_docs.generate("openapi").items():
        assert yaml.safe_load(path.read_text()) == yaml.safe_load(text), "run `make openapi`"


def test_every_route_is_described_with_its_scope(caller):
    document = caller.get("/openapi.json").json()
    described = {
        (method.upper(), path): (operation.get("security"), operation["description"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    for (method, path), scope in MATRIX.items():
        if path in ("/", "/console/{name}"):
            continue
        security, description = described.pop((method, path.replace(":file_id", "")))
        if scope is Scope.NONE:
            assert security is None
        else:
            assert security == [{"key": [scope.name.lower()]}]
            assert description.endswith(f"Scope: {scope.name.lower()}.")
    assert not described


def test_parameters_and_bodies_are_those_of_the_models(caller):
    paths = caller.get("/openapi.json").json()["paths"]
    get = paths["/v1/entries"]["get"]
    assert [p["name"] for p in get["parameters"]] == list(EntriesQuery.model_fields)
    put = paths["/v1/entries"]["post"]["requestBody"]["content"]
    assert put["application/json"]["schema"]["$ref"].endswith("/EntriesToPut")
    assert "422" not in str(paths)
    for operations in paths.values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"]


def test_example_of_an_entry_is_accepted(caller):
    document = caller.get("/openapi.json").json()
    example = document["components"]["schemas"]["EntryToPut"]["example"]
    assert set(ENTRY) <= set(example)
    assert caller.post("/v1/entries", json={"entries": [example]}).status_code == 200


def test_references_have_targets(caller):
    text = caller.get("/openapi.json").text
    names = caller.get("/openapi.json").json()["components"]["schemas"]
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.split('"')[0] in names
