import json

from tests.indexfile import chained_files, compacted_files
from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile.dump import describe_file


def test_compacted_file_is_described_in_words_of_the_format(tmp_path):
    rows = compacted_files.make_rows(3000, distinct=1000)
    path = tmp_path / "file"
    path.write_bytes(compacted_files.write(rows, extra={"begin_ms": 5}))
    described = describe_file(LocalFileSystem(), path)
    assert json.loads(json.dumps(described)) == described
    assert described["form"] == "compacted"
    assert described["item_count"] == 3000
    assert described["dictionaries"]["topic"]["strings"] == list(compacted_files.TOPICS)
    assert described["pages"]["bytes_greatest"] <= 4096
    assert described["columns"]["tag"]["frame"] == "file"
    assert described["extra"] == {"begin_ms": 5}
    hashes = described["run_histogram"]
    assert sum(hashes.values()) == described["distinct_hashes"]
    assert sum(part["bytes"] for part in described["parts"].values()) < described["bytes"]


def test_chained_file_is_described_with_its_chains(tmp_path):
    path = tmp_path / "file"
    file = chained_files.make_file(path, slot_count=16, item_capacity=100)
    file.append([chained_files.make_part([f"k{i}" for i in range(40)])])
    described = describe_file(LocalFileSystem(), path)
    assert json.loads(json.dumps(described)) == described
    assert described["form"] == "chained"
    assert described["fill"] == 0.4
    assert sum(described["chain_histogram"].values()) == 16
    file.close()
