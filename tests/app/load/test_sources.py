"""Which files a load reads: folders, globs, compressed files, objects, the standard input."""

import io
import os
from types import SimpleNamespace
from urllib.parse import parse_qs

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.recording_index import RecordingIndex
from tests.app.shown_rows import shown_row
from tierdex.app.load.loader import Loader
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.files.object_file import opened_file
from tierdex.filesystem import LocalFileSystem
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.open import open_objects, open_store

OPTIONS = LoadOptions(topic="o", keys=("id",), timestamp="t")


def loaded(given, options=OPTIONS):
    """Return the (file, key) of each entry, and the report."""
    index = RecordingIndex()
    report = Loader(index).load(given, options)
    return [(put.location["source"], put.key) for put in index.puts], report


@pytest.fixture
def tree(tmp_path):
    for name in (
        "a.csv",
        "sub/b.csv",
        "sub/c.jsonl",
        "notes.txt",
        "_SUCCESS",
        ".hidden.csv",
        "[x].csv",
    ):
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f'{{"id": "{name}", "t": 1}}\n' if name.endswith("jsonl") else f"id,t\n{name},1\n"
        path.write_text(text)
    return tmp_path / "logs"


def test_folder_stands_for_the_files_below_it_in_order(tree):
    found, report = loaded(tree)
    names = ["[x].csv", "a.csv", "sub/b.csv", "sub/c.jsonl"]
    assert found == [(str(tree / name), name) for name in names]
    assert (report.files, report.left_out) == (4, 1)  # notes.txt


def test_empty_files_among_others_have_no_rows(tree):
    for name, data in {
        "b0.csv": b"",
        "b1.csv": b"\n\n",
        "b2.csv": b"id,t\n",
        "b3.jsonl": b"",
    }.items():
        (tree / name).write_bytes(data)
    found, report = loaded(tree)
    assert [key for _, key in found] == ["[x].csv", "a.csv", "sub/b.csv", "sub/c.jsonl"]
    assert (report.files, report.unchanged) == (4, 4)


def test_globs_and_several_names_are_read_once_each(tree):
    found, _ = loaded([f"{tree}/**/*.csv", f"{tree}/a.csv", f"file://{tree}/[x].csv"])
    assert [key for _, key in found] == ["[x].csv", "a.csv", "sub/b.csv"]


@pytest.mark.parametrize("store", [False, True])
def test_globs_leave_hidden_names_out_unless_they_say_them(tmp_path, store):
    names = ["a.csv", "a_1.csv", "_tmp/a.csv", "_a.csv", "sub/_tmp/a.csv"]
    root = "memory://globs" if store else str(tmp_path)
    for name in names:
        data = f"id,t\n{name},1\n".encode()
        if store:
            open_store(root).put(name, data)
        else:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
    for pattern, found in {
        "a*.csv": ["a.csv", "a_1.csv"],
        "**/*.csv": ["a.csv", "a_1.csv"],
        "_a*": ["_a.csv"],
        "_tmp/*": ["_tmp/a.csv"],
        **({} if store else {"**/[!x][_x]?.csv": ["a_1.csv"]}),
    }.items():
        assert [key for _, key in loaded(f"{root}/{pattern}")[0]] == found


def test_folder_with_links_and_pipes_is_read_once(tree):
    (tree / "loop").symlink_to(tree)
    (tree / "sub" / "up").symlink_to(tree)
    (tree / "gone.csv").symlink_to(tree / "nowhere")
    os.mkfifo(tree / "pipe.csv")
    for given in (tree, f"{tree}/**/*.csv"):
        keys = [key for _, key in loaded(given)[0]]
        assert [key for key in keys if key.endswith("csv")] == ["[x].csv", "a.csv", "sub/b.csv"]


def test_url_of_no_store_is_refused_as_a_file():
    with pytest.raises(InvalidRequestError, match="s3://"):
        loaded("https://127.0.0.1/x.csv")


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InvalidRequestError, match="standard input"):
        loaded(tmp_path / "pipe.csv")


@pytest.mark.parametrize("name", ["none.csv", "*.csv", ""])
def test_what_stands_for_no_file_is_not_found(tmp_path, name):
    (tmp_path / "x.txt").touch()
    with pytest.raises(NotFoundError):
        loaded(f"{tmp_path}/{name}")


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_compressed_text_is_placed_by_its_unfolded_bytes(tmp_path, codec):
    name = {"gz": "gzip", "zst": "zstd"}[codec]
    text = b"id,t\n" + b"".join(b"K%d,%d\n" % (n, n) for n in range(30_000))
    half = len(text) // 2
    path = tmp_path / f"o.csv.{codec}"
    members = (pa.compress(part, name, asbytes=True) for part in (text[:half], text[half:]))
    path.write_bytes(b"".join(members))
    index = RecordingIndex()
    report = Loader(index).load(path, OPTIONS)
    assert report.rows == 30_000
    for put in (index.puts[0], index.puts[-1]):
        offset, size = put.location["offset"], put.location["size"]
        assert text[offset : offset + size] == b"%s,%d" % (put.key.encode(), put.timestamp // 1000)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidRequestError, match="cannot be decompressed"):
        Loader(index).load(path, OPTIONS)


def test_objects_are_loaded_by_url_folder_and_glob(tmp_path):
    store = open_store("memory://loaded")
    parquet = io.BytesIO()
    pq.write_table(pa.table({"id": ["P"], "t": [1]}), parquet)
    for key, data in {
        "lake/day=1/a.csv": b"id,t\nA,1\n",
        "lake/day=2/b.csv.gz": pa.compress(b"id,t\nB,1\n", "gzip", asbytes=True),
        "lake/day=2/deep/p.parquet": parquet.getvalue(),
        "lake/_tmp/x.csv": b"id,t\nX,1\n",
        "other.csv": b"id,t\nO,1\n",
    }.items():
        store.put(key, data)
    url = "memory://loaded"
    assert loaded(f"{url}/lake/day=1/a.csv")[0] == [(f"{url}/lake/day=1/a.csv", "A")]
    assert [key for _, key in loaded(f"{url}/lake/")[0]] == ["A", "B", "P"]
    assert [key for _, key in loaded(f"{url}/lake/*/*.csv*")[0]] == ["A", "B"]
    assert [key for _, key in loaded(f"{url}/lake/**/*.parquet")[0]] == ["P"]
    for absent in (f"{url}/none.csv", f"{url}/none/", f"{url}/none/*.csv"):
        with pytest.raises(NotFoundError):
            loaded(absent)


ODD_KEYS = [
    "topics/orders/partition=0/orders+0+0000000000.jsonl", "dt=2024-03-01 10%3A00%3A00/part 1.jsonl",
    "Bücher/été/注文.jsonl", "a:b/c,d;e/f&g=h/~x!'()*.jsonl", "what?/#1.jsonl", "double//slash/x.jsonl",
    "x" * 950 + ".jsonl", "brackets[1]/{a}/|^`\\<>\".jsonl",
]  # fmt: skip


def test_objects_of_any_key_are_loaded_and_shown(tmp_path):
    store = MemoryStore.shared("odd-keys", any_key=True)
    for number, key in enumerate(ODD_KEYS):
        store.put("lake/" + key, b'{"id":"A-%d","t":1}\n' % number)
    register = LoadRegister(LocalFileSystem(), tmp_path)
    index = RecordingIndex()
    Loader(index, register=register).load("memory://odd-keys/lake/", OPTIONS)
    assert sorted(put.key for put in index.puts) == [f"A-{n}" for n in range(len(ODD_KEYS))]
    for number, key in enumerate(ODD_KEYS):
        (entry,) = index.query("o", key=f"A-{number}").entries
        assert entry.source == f"memory://odd-keys/lake/{key}"
        assert shown_row(register, entry, key=f"A-{number}").outcome == "shown"


def test_objects_of_any_key_of_a_real_bucket_are_loaded_and_shown(tmp_path, s3_server):
    url = s3_server.make_url("lake")
    root, _, parameters = url.partition("?")
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    endpoint = parse_qs(parameters)["endpoint_url"][0]
    client = boto3.client("s3", endpoint_url=endpoint)
    keys = [key for key in ODD_KEYS if "//" not in key and "\\" not in key]
    for number, key in enumerate(keys):
        body = b'{"id":"A-%d","t":1}\n' % number
        client.put_object(Bucket=bucket, Key=f"{prefix}/any/{key}".lstrip("/"), Body=body)
    register = LoadRegister(LocalFileSystem(), tmp_path)
    index = RecordingIndex()
    Loader(index, register=register).load(f"{root}/any/?{parameters}", OPTIONS)
    assert sorted(put.key for put in index.puts) == [f"A-{n}" for n in range(len(keys))]
    for number, key in enumerate(keys):
        (entry,) = index.query("o", key=f"A-{number}").entries
        assert entry.source == f"{root}/any/{key}"
        assert shown_row(register, entry, key=f"A-{number}").outcome == "shown"


@pytest.mark.parametrize("url", ["memory://odd-keys/a", "file:///tmp", "s3://no.bucket.here/x"])
def test_only_a_bucket_has_objects_of_users(url):
    with pytest.raises(InvalidRequestError):
        open_objects(url)


def test_key_that_no_bucket_allows_is_refused():
    store = open_objects("memory://odd-keys")
    for key in ("", "x" * 1025, "\ud800"):
        with pytest.raises(InvalidRequestError):
            store.get(key)


def test_standard_input_is_read(monkeypatch):
    text = b"id,t\nA,1\nB,2"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    options = LoadOptions(topic="o", keys=("id",), timestamp="t", kind="csv")
    found, report = loaded("-", options)
    assert found == [("-", "A"), ("-", "B")]
    assert report.rows == 2
    with pytest.raises(InvalidRequestError, match="--kind"):
        loaded("-")


def test_rows_of_parquet_are_refused_where_only_messages_are_taken(tmp_path):
    pq.write_table(pa.table({"id": ["P"], "t": [1]}), tmp_path / "p.parquet")
    with pytest.raises(InvalidRequestError, match="data folder"):
        Loader(RecordingIndex(), names_source=False).load(tmp_path / "p.parquet", OPTIONS)


def test_what_is_no_file_is_told_by_name(tree):
    os.mkfifo(tree / "pipe.csv")
    os.mkfifo(tree / "pipe.txt")
    (tree / "gone.csv").symlink_to(tree / "nowhere")
    (tree / "again.csv").symlink_to(tree / "a.csv")
    found, report = loaded(tree)
    assert [key for _, key in found] == ["[x].csv", "a.csv", "sub/b.csv", "sub/c.jsonl"]
    assert report.not_files == {
        str(tree / "pipe.csv"): "a pipe", str(tree / "gone.csv"): "a link to nothing"
    }  # fmt: skip


@pytest.mark.parametrize("given", ["", "/caf*", "/**/*.csv", "/caf\udce9%.csv"])
def test_name_that_is_no_text_stands_in_entries_as_a_url(tmp_path, given):
    with open(os.fsencode(tmp_path) + b"/caf\xe9%.csv", "wb") as file:
        file.write(b"id,t\nA,1\n")
    ((source, key),) = loaded(f"{tmp_path}{given}")[0]
    assert (source, key) == (f"file://{tmp_path}/caf%E9%25.csv", "A")
    with opened_file(LocalFileSystem(), source) as opened:
        assert opened.read() == b"id,t\nA,1\n"
    assert loaded(source)[0] == [(source, "A")]
