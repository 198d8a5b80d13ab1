"""Sizes, counts and positions that a file names are checked before they are used."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.torture import forgery
from tests.torture.file_forms import Compacted, Sealed
from tierdex.errors import CorruptFileError


@pytest.mark.parametrize(("kind", "compacted"), [(Sealed, False), (Compacted, True)])
def test_forger_signs_as_the_writer_does(kind, compacted):
    """Else every forgery would be refused for its checksums, and this would test nothing."""
    sound = kind(3).damages.sound
    forger = forgery.Forger(sound, compacted=compacted)
    signed = sound.copy()
    forger._sign(signed)
    assert np.array_equal(signed, sound)
    assert len(forger.fields) > 300


@pytest.mark.parametrize("kind", [forgery.ForgedSealed, forgery.ForgedCompacted])
@pytest.mark.parametrize("length", [0, 1, 3, 5, 4095])
def test_part_of_any_length_is_refused_or_read(kind, length):
    """A length need not be a multiple of what the part is made of."""
    form = kind(3)
    forger = forgery.Forger(form.damages.sound, compacted=kind.compacted)
    lengths = [at for name, at, _ in forger.fields if name.startswith("part ") and "length" in name]
    assert len(lengths) == len(forger.parts)
    refused = 0
    for place in lengths:
        data = form.damages.sound.copy()
        data[place : place + 8] = np.frombuffer(length.to_bytes(8, "little"), np.uint8)
        forger._sign(data)
        try:
            form.use(data)
        except CorruptFileError:
            refused += 1
    assert refused >= len(lengths) - 2


def test_absurd_numbers_under_right_checksums_harm_nobody():
    """Neither a crash nor an untyped error, nor memory by the gigabyte; many pass the checksums."""
    outcomes = forgery.forge(900, seed=1)
    assert outcomes["refused"] > 300
    assert outcomes["used"] > 200


def test_page_whose_hashes_are_not_in_order_is_refused_by_a_batch():
    form = forgery.ForgedPublished(3)
    forger = forgery.Forger(form.damages.sound, compacted=True)
    (place,) = [at for name, at, _ in forger.fields if name == "page 7 hash_slope"]
    data = form.damages.sound.copy()
    data[place : place + 8] = np.frombuffer(random.Random(1).randbytes(8), np.uint8)
    forger._sign(data)
    with pytest.raises(CorruptFileError, match="not in order"):
        form.use(data)
