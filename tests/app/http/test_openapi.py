from __future__ import annotations

import pytest
import yaml
from jsonschema.exceptions import ValidationError
from openapi_schema_validator import OAS31Validator

from tests.app.conftest import ENTRY
from tests.security.test_scopes import MATRIX
from tierdex.app.http.schemas.parameters import EntriesQuery
from tierdex.app.rights import Scope
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


def test_every_example_keeps_its_own_schema(caller):
    document = caller.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    examples = {name: schema["example"] for name, schema in schemas.items() if "example" in schema}
    assert {"EntryToPut", "Lookup", "Answer", "MessageToAppend"} <= set(examples)
    for name, example in examples.items():
        whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        OAS31Validator(whole).validate(example)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("EntryToPut", {"keys": None, "message_id": None}),
        ("EntryToPut", {"keys": [], "message_id": None}),
        ("EntryToPut", {"key": "a"}),
        ("Lookup", {"key": None}),
        ("Lookup", {"message_id": "a"}),
    ],
)
def test_rules_between_members_are_in_the_schema(caller, name, wrong):
    document = caller.get("/openapi.json").json()
    whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    right = document["components"]["schemas"][name]["example"]
    with pytest.raises(ValidationError):
        OAS31Validator(whole).validate({**right, **wrong})


def test_every_operation_has_a_tag_and_an_id_of_its_own(caller):
    document = caller.get("/openapi.json").json()
    known = {tag["name"] for tag in document["tags"]}
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert {tag for operation in operations for tag in operation["tags"]} == known
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)


def test_no_parameter_is_null(caller):
    paths = caller.get("/openapi.json").json()["paths"]
    for operations in paths.values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                assert "'null'" not in str(parameter["schema"]), parameter["name"]
