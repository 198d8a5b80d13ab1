from __future__ import annotations

import yaml

from tests.app.conftest import ENTRY
from tierdex.app.service import ROUTES
from tools import generate_docs


def test_openapi_yaml_says_what_the_service_says():
    for path, text in generate_docs.generate("openapi").items():
        assert yaml.safe_load(path.read_text()) == yaml.safe_load(text), "run `make openapi`"


def test_every_route_is_described_with_its_scope(door):
    document = door.get("/openapi.json").json()
    for spec in ROUTES:
        path = spec.path.replace(":file_id", "")
        operation = document["paths"][path][spec.method.lower()]
        assert bool(operation.get("security")) == (spec.scope > 0)
        assert operation["description"]


def test_example_of_an_entry_is_accepted(door):
    document = door.get("/openapi.json").json()
    example = document["components"]["schemas"]["EntryToPut"]["example"]
    assert set(ENTRY) <= set(example)
    assert door.post("/v1/entries", json={"entries": [example]}).status_code == 200


def test_references_have_targets(door):
    text = door.get("/openapi.json").text
    names = door.get("/openapi.json").json()["components"]["schemas"]
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.split('"')[0] in names
