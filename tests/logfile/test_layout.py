"""compatibility-sensitive: a change here changes the file format and needs a second reviewer."""

from tierdex.logfile import layout
from tools.generate_docs import ROOT, generate


def test_constants_on_disk_are_what_version_1_says():
    assert layout.HEADER_MAGIC == b"TIERDXL1"
    assert layout.RECORD_MAGIC.to_bytes(4, "little") == b"LBCH"
    assert {form.name: form.value for form in layout.Form} == {"JOURNAL": 1, "GROUPED": 2}
    assert {codec.name: codec.value for codec in layout.Codec} == {"PLAIN": 0, "LZ4": 1, "ZSTD": 2}
    assert [tag.value for tag in layout.ExtraTag] == [1, 2, 3, 4, 5]
    assert (layout.BODY_BITS, layout.ROW_FLAGS) == (26, 0b1111 << 26)
    assert (layout.CHECKPOINT_BATCHES, layout.QUEUE_GROUP, layout.PAGE_MESSAGES_MAX) == (
        256,
        512,
        4096,
    )


def test_structs_keep_their_offsets():
    assert layout.places(layout.HEADER) == {
        "magic": 0, "format_version": 8, "form": 10, "codec": 11, "crc": 12, "uuid": 16,
        "created_ms": 32, "capacity": 40, "generation": 48, "page_bytes": 56, "lanes": 60,
        "reserved": 61,
    }  # fmt: skip
    assert layout.places(layout.RECORD) == {
        "magic": 0, "crc": 4, "number": 8, "message_count": 16, "entry_bytes": 20, "row_bytes": 24,
        "base_time": 32, "uuid": 40, "flags": 56, "synced_to": 60,
    }  # fmt: skip
    assert layout.places(layout.ENTRY) == {
        "queue": 0, "topic": 4, "queue_id": 8, "name_bytes": 12, "reserved": 14, "first_offset": 16,
    }  # fmt: skip
    assert layout.places(layout.ROW) == {"size": 0, "queue": 4, "time": 8}
    assert layout.places(layout.EXTRA) == {"tag": 0, "name_bytes": 1, "value_bytes": 2}
    assert layout.places(layout.TARGET) == {"timestamp": 0, "queue_id": 8}
    assert layout.places(layout.MARK) == {"deliver_at": 0, "offset": 8}
    assert (layout.TIMER_TOPIC, layout.MARKS_QUEUE, layout.HOUR_MS) == (
        b"\0timer",
        2**31 - 1,
        3_600_000,
    )
    assert layout.places(layout.JOURNAL_QUEUE) == {
        "topic": 0, "queue_id": 4, "first_offset": 8, "first_slot": 16, "count": 24, "number": 28,
    }  # fmt: skip
    assert layout.places(layout.PAGE_HEADER) == {
        "crc": 0, "raw_bytes": 4, "stored_bytes": 8, "message_count": 12, "run_count": 14,
        "size_base": 16, "extra_base": 20, "time_base": 24, "codec": 32, "queue_width": 33,
        "count_width": 34, "size_width": 35, "time_width": 36, "flag_width": 37, "extra_width": 38,
        "reserved": 39,
    }  # fmt: skip
    assert layout.places(layout.DIRECTORY_ENTRY) == {
        "position": 0, "first_queue": 8, "first_ordinal": 12, "min_time": 16, "max_time": 24,
    }  # fmt: skip


def test_tables_of_the_format_document_are_the_layout():
    for path, text in generate("log_format").items():
        assert path.read_text() == text, "run `make docs`"


def test_document_tables_every_struct():
    text = (ROOT / "docs" / "log_format.md").read_text()
    for title in layout.STRUCTS:
        assert f"### {title}" in text
