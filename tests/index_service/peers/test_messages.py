"""What peers say to each other is refused when it is damaged, forged, or of another version or owner."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pytest

from tierdex.errors import InvalidRequestError
from tierdex.index_service.peers.messages import (
    Owner,
    PeerAnswer,
    PeerFile,
    PeerRefusedError,
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from tierdex.index_service.requests.lookups import NO_TOPIC, Lookups

OWNER = Owner("a", 3, "01" * 16, 7)
LOOKUPS = Lookups(
    np.array([11, 12], np.uint64), np.array([0, 1], np.uint8), ["orders"],
    np.array([0, NO_TOPIC], np.int32), np.array([0, 0]), np.array([5000, 5000]), np.array([9, 9]), str,
)  # fmt: skip
QUESTION = Question(OWNER, 9, LOOKUPS)
_KEY = b"tierdex-peer"


def make_file(**changes):
    columns = {
        "queue_id": np.array([1, 2], np.int32), "offset": np.array([10, 20]),
        "size": np.array([3, 4], np.uint32), "timestamp": np.array([100, 200]),
    }  # fmt: skip
    fields = {
        "number": 1_700_000_000_001, "uuid": b"u" * 16, "state": "unsealed", "min_time": 100,
        "max_time": 200, "lookups": np.array([0, 1]), "places": np.array([5, 6]),
        "topics": ["orders", "other"], "columns": columns, "cut": frozenset({1}),
    }  # fmt: skip
    return PeerFile(**{**fields, **changes})


ANSWER = PeerAnswer(OWNER, [make_file()], [("x-1", "in quarantine")])


def shown(answer):
    """Return everything that an answer says, comparable."""
    files = [
        (
            f.number, f.uuid, f.state, f.min_time, f.max_time, f.lookups.tolist(),
            f.places.tolist(), f.topics, {n: c.tolist() for n, c in f.columns.items()}, f.cut,
        )
        for f in answer.files
    ]  # fmt: skip
    return answer.given_by, files, answer.missing, answer.refresh_to


def read(data):
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table


def said_otherwise(data, **changes):
    """Return a message whose JSON text says something else, its checksum as it was."""
    table = read(data)
    said = {**orjson.loads(table.schema.metadata[_KEY]), **changes}
    told = table.replace_schema_metadata({_KEY: orjson.dumps(said)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, told.schema) as writer:
        writer.write_table(told)
    return sink.getvalue().to_pybytes()


def test_an_answer_comes_back_as_it_was_given():
    assert shown(decode_answer(encode_answer(ANSWER), QUESTION)) == shown(ANSWER)
    later = PeerAnswer(OWNER, refresh_to=8)
    assert shown(decode_answer(encode_answer(later), QUESTION)) == shown(later)


def test_no_flipped_bit_changes_an_answer():
    data, refused = encode_answer(ANSWER), 0
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 1 << place % 8
        try:
            found = decode_answer(bytes(altered), QUESTION)
        except PeerRefusedError:
            refused += 1
        else:
            assert shown(found) == shown(ANSWER), place
    assert refused > len(data) // 4  # the rest is padding, and what readers of Arrow pass over


def test_no_flipped_bit_changes_a_question():
    data = encode_question(QUESTION)
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 1 << place % 8
        try:
            found = decode_question(read(bytes(altered)))
        except (InvalidRequestError, pa.ArrowException, ValueError, OSError):
            continue
        assert found.asked == OWNER, place
        assert found.limit == QUESTION.limit
        assert found.lookups.hashes.tolist() == [11, 12], place
        assert found.lookups.end.tolist() == [5000, 5000], place


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2}, {"version": None}, {"node": "b"}, {"epoch": 4}, {"owner": "02" * 16},
        {"missing": []}, {"files": []}, {"refresh_to": 9}, {"crc": 0}, {"crc": None},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_of_another_version_owner_or_content_is_refused(changes):
    with pytest.raises(PeerRefusedError):
        decode_answer(said_otherwise(encode_answer(ANSWER), **changes), QUESTION)


@pytest.mark.parametrize(
    "answer",
    [
        PeerAnswer(Owner("b", 3, "01" * 16, 7), [make_file()]),
        PeerAnswer(Owner("a", 4, "01" * 16, 7), [make_file()]),
        PeerAnswer(Owner("a", 3, "02" * 16, 7), [make_file()]),
        PeerAnswer(OWNER, refresh_to=7),
        PeerAnswer(OWNER, [make_file(topics=["other", "other"])]),
        PeerAnswer(OWNER, [make_file(lookups=np.array([0, 2]))]),
        PeerAnswer(OWNER, [make_file(lookups=np.array([1, 0]))]),
        PeerAnswer(OWNER, [make_file(number=0)]),
        PeerAnswer(OWNER, [make_file(uuid=b"u")]),
        PeerAnswer(
            OWNER, [make_file(columns={**make_file().columns, "timestamp": np.array([100, 6000])})]
        ),
    ],
    ids=range(10),
)
def test_a_sound_answer_that_nobody_asked_for_is_refused(answer):
    with pytest.raises(PeerRefusedError):
        decode_answer(encode_answer(answer), QUESTION)
