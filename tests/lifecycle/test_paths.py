from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.errors import InvalidRequestError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import (
    NUMBER_LIMIT,
    DataPaths,
    StorePaths,
    format_number,
    is_temporary,
    make_file_id,
    parse_file_id,
    parse_number,
    parse_sidecar_name,
)

numbers = st.integers(0, NUMBER_LIMIT - 1)
nodes = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)
uuids = st.binary(min_size=16, max_size=16)


@given(numbers, nodes)
def test_file_id_is_parsed_back(number, node):
    assert parse_file_id(make_file_id(number, node)) == (number, node)


@given(numbers, nodes, uuids)
def test_names_are_parsed_back(number, node, uuid):
    store, data = StorePaths(node), DataPaths(Path("/d"))
    assert parse_number(format_number(number)) == number
    assert store.parse_manifest(store.manifest(number)) == number
    assert store.parse_object(store.file_object(number, uuid)) == (number, uuid)
    assert parse_sidecar_name(data.sidecar(number, node, uuid).name) == (number, node, uuid)


@given(st.lists(st.tuples(numbers, nodes), min_size=2, max_size=5))
def test_ids_of_one_node_sort_as_numbers_do(pairs):
    ordered = sorted(pairs)
    assert sorted(pairs, key=lambda pair: make_file_id(*pair)[:20]) == sorted(
        pairs, key=lambda pair: pair[0]
    )
    assert ordered[0][0] <= ordered[-1][0]


NEAR_MISSES = [
    "", "1", "0" * 19, "0" * 21, "0" * 19 + "x", " " + "0" * 19, "0" * 20 + "\n", "-" + "0" * 19,
    "+" + "0" * 19, "٠" * 20, "0" * 20 + ".tmp", "9" * 20, "0" * 10 + "_" + "0" * 9, "next.ready",
]  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_miss_of_a_number_is_refused(name):
    assert parse_number(name) is None


@pytest.mark.parametrize(
    "file_id",
    [*NEAR_MISSES, "0" * 20, "0" * 20 + "-", "0" * 20 + "-A", "0" * 20 + "-a/b", "9" * 20 + "-a"],
)
def test_near_miss_of_a_file_id_is_refused(file_id):
    with pytest.raises(InvalidRequestError):
        parse_file_id(file_id)


@pytest.mark.parametrize(
    "key",
    [
        "", "nodes/n1/files/", "nodes/n2/files/" + "0" * 20 + "-" + "a" * 32,
        "nodes/n1/files/" + "0" * 20 + "-" + "A" * 32, "nodes/n1/files/" + "0" * 20 + "-" + "a" * 31,
        "nodes/n1/files/x/" + "0" * 20 + "-" + "a" * 32, "nodes/n1/manifest/" + "0" * 19,
        "xnodes/n1/files/" + "0" * 20 + "-" + "a" * 32,
    ],
)  # fmt: skip
def test_near_miss_of_an_object_key_is_refused(key):
    paths = StorePaths("n1")
    assert paths.parse_object(key) is None
    assert paths.parse_manifest(key) is None


@pytest.mark.parametrize("node", ["", "A", "-b", "a/b", ".a", "a" * 64, "ä"])
def test_illegal_node_name_is_refused(node):
    with pytest.raises(InvalidRequestError):
        StorePaths(node)


def test_folders_are_the_states():
    paths = DataPaths(Path("/d"))
    names = [folder.name for folder in paths.folders]
    assert names == ["unsealed", "sealed", "compacted", "uploaded", "quarantine"]
    assert paths.path_of(FileState.SEALED, 7) == Path("/d/sealed/00000000000000000007")
    assert paths.lock == Path("/d/LOCK")
    assert paths.ready == Path("/d/unsealed/next.ready")


def test_temporary_name_lies_beside_its_file():
    paths = DataPaths(Path("/d"))
    temporary = paths.temporary(FileState.COMPACTED, 7)
    assert temporary.parent == paths.folder(FileState.COMPACTED)
    assert is_temporary(temporary.name)
    assert parse_number(temporary.name) is None
