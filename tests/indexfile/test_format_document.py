import numpy as np

from tests.indexfile import compacted_files as files
from tierdex.indexfile import layout
from tools.generate_docs import ROOT, generate


def test_tables_of_the_format_document_are_the_layout():
    for path, text in generate("format").items():
        assert path.read_text() == text, "run `make docs`"


def test_document_tables_every_struct():
    text = (ROOT / "docs" / "format.md").read_text()
    for title in layout.SHARED_STRUCTS:
        assert f"### {title}" in text


def test_page_by_example_lies_as_the_document_says():
    rows = np.zeros(3, files.MESSAGE_SCHEMA.dtype)
    rows["key_hash"] = [100, 200, 1000]
    rows["timestamp"] = [60_000, 180_000, 240_000]
    rows["offset"], rows["size"] = [0, 1000, 2000], 100
    file = files.make_file(rows, dictionaries=files.make_dictionaries(topics=("orders",)))
    page = bytes(file.page_bytes(file.span(0, 1)))
    header = np.frombuffer(page, layout.PAGE_HEADER, 1)[0]
    assert (header["item_count"], header["column_count"]) == (3, 2)
    columns = np.frombuffer(page, layout.PAGE_COLUMN, 2, 24).tolist()
    assert columns == [(60_000, 60_000, 2), (0, 1000, 2)]
    after_hashes = 50 + (3 * int(header["hash_width"]) + 7) // 8
    assert page[after_hashes : after_hashes + 2] == bytes([0b111000, 0b100100])
    assert 7 <= len(page[after_hashes + 2 :]) <= 14
    assert not any(page[after_hashes + 2 :])
