"""One Spark session for all tests of the pipeline, and the flights as a table of entries."""

from __future__ import annotations

import csv
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from tests.pipeline.loaded_python import write_program
from tierdex.app.cli.commands import make_cli
from tierdex.filesystem import LocalFileSystem
from tierdex.pipeline import session as pipeline_session
from tierdex.pipeline.jobs.scan_report import forget_session
from tierdex.pipeline.session import make_session
from tools.demo.flights import unpack_demo

QUEUES = {"EWR": 0, "JFK": 1, "LGA": 2}
# Half of a short session's CPU is the JVM compiling its own code well, which pays after minutes.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The one session of the test run, local[2]."""
    python = write_program(tmp_path_factory.mktemp("spark") / "python")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # pyspark's own imports
        patch.setenv("PYSPARK_PYTHON", str(python))
        session = make_session(
            "local[2]",
            name="tierdex-tests",
            conf={
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
            },
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    forget_session()


@pytest.fixture
def run_cli(spark, monkeypatch):
    """Run `tierdex spark ...`; its session is the shared one, which outlives it."""

    class Shared:
        def __getattr__(self, name):
            return getattr(spark, name)

        def stop(self):
            pass

    monkeypatch.setattr(pipeline_session, "make_session", lambda *_, **__: Shared())

    def call(*arguments, exit_code=0):
        result = CliRunner().invoke(make_cli(), ["spark", *map(str, arguments)])
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result

    return call


@pytest.fixture(scope="session")
def flights_csv(tmp_path_factory):
    """flights.csv, unpacked."""
    return unpack_demo(tmp_path_factory.mktemp("flights"), LocalFileSystem())


@pytest.fixture(scope="session")
def flights(flights_csv):
    """The flights as an Arrow table of entries, one row a flight, in the order of the file."""
    options = pa.csv.ConvertOptions(
        strings_can_be_null=True, null_values=["NA", ""], column_types={"flight": pa.string()}
    )
    table = pa.csv.read_csv(flights_csv, convert_options=options)
    carriers = np.array(table["carrier"].to_pylist(), object)
    numbers = np.array(table["flight"].to_pylist(), object)
    tails = table["tailnum"].to_pylist()
    designators = (carriers + numbers).tolist()
    rows = np.arange(table.num_rows)
    hours = table["time_hour"].cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
    return pa.table(
        {
            "topic": pa.array(carriers.tolist(), pa.string()),
            "keys": pa.array(
                [[d] if t is None else [t, d] for t, d in zip(tails, designators, strict=True)],
                pa.list_(pa.string()),
            ),
            "message_id": pa.array([f"flight-{row}" for row in rows.tolist()], pa.string()),
            "queue_id": pa.array([QUEUES[one] for one in table["origin"].to_pylist()], pa.int32()),
            "offset": pa.array(rows * 100, pa.int64()),
            "size": pa.array(np.full(len(rows), 100), pa.int64()),
            "timestamp": pa.array(hours + table["minute"].to_numpy() * 60_000, pa.int64()),
        }
    )


@pytest.fixture(scope="session")
def flights_df(spark, flights, tmp_path_factory):
    """The flights as a DataFrame over Parquet, in three partitions or so."""
    path = tmp_path_factory.mktemp("parquet") / "flights.parquet"
    pa.parquet.write_table(flights, path, row_group_size=60_000)
    return spark.read.parquet(str(path))


@pytest.fixture(scope="session")
def flights_store(flights_df, tmp_path_factory):
    """A store with all flights, written by the sink in files of at most 50,000 entries."""
    url = str(tmp_path_factory.mktemp("store") / "flights")
    flights_df.write.format("tierdex").mode("append").option("targetEntries", "50000").save(url)
    return url


@pytest.fixture
def store_url(tmp_path):
    """An empty store."""
    return f"file://{tmp_path}/store"


def key_rows(spark, keys, topic="orders", *, first=0, partitions=1):
    """Return entries as a DataFrame: one key a row, offsets 100 apart, times 1 s apart."""
    rows = [
        (topic, key, 0, 100 * (first + n), 100, 1_700_000_000_000 + 1000 * (first + n))
        for n, key in enumerate(keys)
    ]
    ddl = "topic string, key string, queue_id int, offset bigint, size int, timestamp bigint"
    return spark.createDataFrame(rows, ddl).coalesce(partitions)


def append(df, url, **options):
    """Write a DataFrame with the sink."""
    df.write.format("tierdex").mode("append").options(**options).save(url)


def read(spark, url, **options):
    """Return a scan."""
    return spark.read.format("tierdex").options(**options).load(url)


def read_csv_rows(path, count):
    """Return the first rows of flights.csv as dicts."""
    with open(path, newline="") as file:
        return [row for row, _ in zip(csv.DictReader(file), range(count), strict=False)]
