"""The package as a user gets it: its public names, what an import costs, and the wheel in a clean place."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import tierdex
from tierdex.app.cli.commands import COMMANDS, GROUPS
from tierdex.compactor.worker import Compactor
from tierdex.fileparts.kernels import built
from tierdex.index_service.batch.batch_queries import answer_batch
from tierdex.index_service.ingest.writer import Writer
from tools.make_wheel import add_libraries

ROOT = Path(__file__).parents[1]
KINDS = [kind for kind in built.KINDS if not built.lacking_for(kind)]
HEAVY = (
    "numba",
    "numpy",
    "pyarrow",
    "boto3",
    "botocore",
    "fastapi",
    "starlette",
    "pydantic",
    "pyspark",
)

PUBLIC_NAMES = [
    "Answer", "AppendReceipt", "ArrayColumn", "ArrowColumn", "AsyncClient", "Bodies", "Body", "Client",
    "DiskRoom", "Durability", "Entry", "Explain", "FileInfo", "ForgetReceipt", "FoundMessages",
    "HeaderLists", "Headers", "Histogram", "Index", "Integers", "Journey", "KeyLists", "Keys",
    "KnownTopics", "LogFileInfo", "Lookup", "Message", "MessageLog", "Missing", "NodeInfo", "NotReady",
    "OnError", "PendingAppend", "PendingBatch", "QueueReader", "ReadAnswer", "ReadPolicyName",
    "Receipt", "Settings", "ShownMessage", "TableInfo", "TableSeen", "Texts", "Time", "TimerHour", "Times",
    "TopicInfo",
    "Unasked", "__version__", "errors", "follow",
]  # fmt: skip
ERRORS = [
    "AlreadyExistsError", "AuthenticationError", "BacklogFullError", "ClosedError", "ConflictError",
    "CorruptFileError", "CursorExpiredError", "FencedError", "FloorError", "FolderInUseError",
    "ForkedError", "IllegalTransitionError", "IncompleteAnswerError", "InvalidRequestError",
    "LossyTakeoverError", "LostManifestError", "NodeInUseError", "NotFoundError",
    "OffsetMismatchError", "OffsetsReusedError",
    "OwnershipError", "PermissionDeniedError", "RateLimitedError", "ReadOnlyError", "RequestTooLargeError",
    "StoreRefusedError", "StoreTimeoutError", "StoreUnavailableError", "TierdexError",
    "UnavailableError", "UnsupportedFormatError",
]  # fmt: skip
INDEX_VERBS = [
    "begin_put", "begin_query", "clock_skew", "close", "compaction_status", "expire", "file", "files",
    "flush", "forget", "forget_sources", "forgettings", "health", "histogram", "known_topics", "nodes",
    "open", "put", "put_batch", "query", "query_batch", "query_batch_arrow", "query_batch_local",
    "refresh", "resources", "resume_forgetting", "roll", "run_compaction",
    "store_requests", "tables", "topic_infos", "topics", "unpublished", "verify_file", "watermark",
]  # fmt: skip


LOG_VERBS = [
    "append", "append_at_once", "append_batch", "append_batch_nowait", "append_nowait", "begin_offset",
    "cached_bytes", "call_when_more", "catch_up", "close", "compaction_status", "deliver_due", "disk_room",
    "end_offset", "end_offsets", "expire", "file", "files", "flush", "forget", "forgettings", "get",
    "hand_over", "health", "offset_at", "open", "queues", "read", "read_arrow", "read_many", "reader",
    "refresh", "resume_forgetting", "roll", "run_compaction", "timers", "topics", "unpublished_count",
    "verify_file", "waiting_bytes",
]  # fmt: skip


def public_verbs(of) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_") and callable(getattr(of, name))}


def test_public_names_are_the_pinned_ones():
    assert sorted(tierdex.__all__) == PUBLIC_NAMES
    assert all(getattr(tierdex, name) is not None for name in PUBLIC_NAMES)
    assert sorted(tierdex.errors.__all__) == ERRORS
    assert sorted(public_verbs(tierdex.Index)) == INDEX_VERBS
    assert sorted(public_verbs(tierdex.MessageLog)) == LOG_VERBS


def test_clients_have_the_verbs_of_the_index():
    # A client has nothing in memory to ask; /readyz tells a service's health, /metrics its requests to
    # the store and what it uses; peers ask each other.
    own = {
        "open",
        "begin_put",
        "begin_query",
        "query_batch_local",
        "health",
        "store_requests",
        "resources",
    }
    own |= {"unpublished", "forget_sources"}  # no request names a path
    verbs = set(INDEX_VERBS) - own
    for client in (tierdex.Client, tierdex.AsyncClient):
        have = {name for parent in client.__mro__ for name in vars(parent)}
        assert verbs - have - {"aclose"} == set(), client


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tierdex.nothing  # noqa: B018


def test_query_command_loads_nothing_that_only_writers_batches_and_other_commands_need(tmp_path):
    with tierdex.Index.open(tmp_path / "data", background=False) as index:
        index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=1, timestamp=1)
        index.roll()
        index.run_compaction()
    commands = [
        f"tierdex.app.cli.commands.{name}" for name in (*COMMANDS, *GROUPS) if name != "query"
    ]
    unwanted = [
        "pyarrow.compute",
        *commands,
        *(c.__module__ for c in (Writer, Compactor, answer_batch)),
    ]
    code = """if True:
        import gc, sys
        from tierdex.app.cli import main
        try:
            main()
        finally:
            loaded = [m for m in sys.modules if m in {unwanted}]
            print(loaded, gc.isenabled(), file=sys.stderr)
    """.replace("{unwanted}", repr(unwanted))
    query = ["query", "--data", str(tmp_path / "data"), "-t", "t", "-k", "a", "-o", "csv"]
    done = subprocess.run([sys.executable, "-c", code, *query], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("t,0,1,1,1,")
    assert done.stderr.splitlines()[-1] == "[] False"


@pytest.mark.parametrize("used", ["errors", "Client, tierdex.AsyncClient, tierdex.Entry"])
def test_import_loads_nothing_heavy(used):
    code = f"import sys, tierdex; tierdex.{used}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built with the build backend that is installed here: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run(
        [*command, "--quiet", "--wheel-dir", folder, ROOT], check=True, capture_output=True
    )
    (built,) = folder.glob("tierdex-*.whl")
    return built


@pytest.fixture(scope="module")
def platform_wheel(wheel, tmp_path_factory):
    """The wheel with the kernels that are built for this tree, as those of every kind of CPU."""
    library = built.library_path(built.TREE)
    if not built.has_fresh(library):
        pytest.skip("no C compiler has built the tree's kernels (make kernels)")
    folder = tmp_path_factory.mktemp("platform")
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return add_libraries(wheel, dict.fromkeys(KINDS, library), tag, folder)


@pytest.fixture(scope="module")
def clean_place(platform_wheel, tmp_path_factory):
    """An environment with the wheel, and the dependencies lent from this one by a path file."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    target = ["--no-deps", "--no-index", "--quiet", "--prefix", folder, platform_wheel]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--ignore-installed", *target], check=True
    )
    # Appended to sys.path behind the wheel; .pth files in there (the editable install) are not read.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_wheel_holds_the_console_the_types_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"tierdex/py.typed", "tierdex/app/console/static/index.html"} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assets = {
        f"tierdex/app/console/static/{p.name}"
        for p in (ROOT / "tierdex/app/console/static").iterdir()
    }
    assert assets <= set(names)
    strange = [n for n in names if not n.startswith(("tierdex/", "tierdex-")) or "__pycache__" in n]
    assert strange == []


def test_platform_wheel_has_the_kernels_and_wants_no_numba(wheel, platform_wheel):
    assert platform_wheel.name.endswith("_x86_64.whl")
    added = set(zipfile.ZipFile(platform_wheel).namelist()) - set(zipfile.ZipFile(wheel).namelist())
    names = {f"tierdex/fileparts/kernels/built/{built.library_path(kind).name}" for kind in KINDS}
    assert added == names
    pure, platform = (wanted_by(each) for each in (wheel, platform_wheel))
    assert pure - platform == {"numba>=0.61"}
    assert platform - pure == set()
    assert any("numba" in each and "compile" in each for each in platform)


def wanted_by(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        (name,) = (each for each in file.namelist() if each.endswith(".dist-info/METADATA"))
        lines = file.read(name).decode().splitlines()
    return {
        line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist")
    }


def test_wheel_works_in_a_clean_environment(clean_place, tmp_path):
    version = subprocess.run(
        [clean_place / "bin" / "tierdex", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout == f"tierdex {tierdex.__version__}\n"
    code = """
import sys
import tierdex
sys.modules["numba"] = None  # an import fails: it is no part of what the wheel wants
assert "clean" in tierdex.__file__, tierdex.__file__
with tierdex.Index.open("data", slot_count=64, item_capacity=64, background=False) as index:
    index.put(topic="t", keys=["k"], queue_id=0, offset=7, size=1, timestamp=1)
    entry = index.query("t", key="k").entries[0]
    print(entry.offset, entry.state)
"""
    done = subprocess.run(
        [clean_place / "bin" / "python", "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={},
    )  # fmt: skip
    assert done.stdout == "7 unsealed\n", done.stderr
