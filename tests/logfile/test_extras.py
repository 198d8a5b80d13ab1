import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.errors import InvalidRequestError
from tierdex.logfile.extras import NO_EXTRA, Extra, decode_extra, encode_extra, encode_extras

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
EXTRAS = st.builds(
    Extra,
    st.none() | TEXT,
    st.lists(TEXT, max_size=3).map(tuple),
    st.lists(st.tuples(TEXT, st.binary(max_size=40)), max_size=3).map(tuple),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)


@given(EXTRAS)
def test_extra_comes_back_as_it_was_given(extra):
    assert decode_extra(encode_extra(extra)) == extra
    assert bool(extra) == (extra != NO_EXTRA)


@given(EXTRAS, st.integers(0, 10_000), st.integers(0, 7))
def test_damaged_extra_is_refused_or_another_one_but_never_crashes(extra, place, bit):
    data = bytearray(encode_extra(extra))
    if data:
        data[place % len(data)] ^= 1 << bit
    for cut in range(len(data)):
        try:
            decode_extra(bytes(data[:cut]))
        except ValueError:
            continue


@pytest.mark.parametrize(
    "extra",
    [
        Extra(keys=("k" * 65_536,)),
        Extra(headers=(("n" * 256, b""),)),
        Extra(headers=(("n", b"v" * 65_536),)),
        Extra(message_id="\ud800"),
    ],
    ids=["long_key", "long_header_name", "long_header", "lone_surrogate"],
)
def test_what_an_extra_cannot_hold_is_refused(extra):
    with pytest.raises(InvalidRequestError):
        encode_extra(extra)


def test_messages_without_an_extra_have_no_bytes():
    offsets, data = encode_extras([None, Extra(), Extra(keys=("k",)), None])
    assert offsets.tolist() == [0, 0, 0, 5, 5]
    assert data.tobytes() == b"\x02\x00\x01\x00k"
