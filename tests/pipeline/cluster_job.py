"""A job for the standalone cluster: run by test_cluster.py in a process of its own.

    python cluster_job.py MASTER ARCHIVE EXECUTOR_PYTHON STORE SCRATCH JAVA_OPTIONS

The first attempt of one partition writes down which executor it runs on and waits for its death. In the store
`STORE-of-a-log` a log has published MESSAGES, which are read whole, in part, and as a stream.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

ENTRIES = 40_000
PARTITIONS = 4
MESSAGES = 400  # of two topics
WAIT_S = 60.0


def main(master, archive, python, store, scratch, java_options):
    from pyspark.sql import functions as F

    from tierdex.pipeline import last_scan, lookup, make_session, merge, verify

    spark = make_session(
        master,
        archive=archive,
        executor_python=python,  # knows nothing of the package
        conf={
            "spark.driver.extraJavaOptions": java_options,
            "spark.executor.extraJavaOptions": java_options,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
        },
    )
    spark.sparkContext.setLogLevel("OFF")

    def wait_for_death(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            note = Path(scratch) / "executor"
            note.with_suffix(".new").write_text(str(parent_of(os.getppid())))
            note.with_suffix(".new").rename(note)
            time.sleep(WAIT_S)
        yield from batches

    number = F.col("id")
    entries = spark.range(ENTRIES, numPartitions=PARTITIONS).select(
        F.lit("orders").alias("topic"),
        F.concat(F.lit("k"), number).alias("key"),
        F.lit(0).alias("queue_id"),
        (number * 10).alias("offset"),
        F.lit(10).alias("size"),
        number.alias("timestamp"),
    )
    slow = entries.mapInArrow(wait_for_death, entries.schema)
    slow.write.format("tierdex").mode("append").save(store)
    keys = entries.where("offset % 1000 = 0")
    result = {
        "entries": spark.read.format("tierdex").load(store).count(),
        "tasks_of_scan": last_scan().tasks_reported,
    }
    found = lookup(spark, store, keys.select("topic", "key"), how="inner")
    result |= {
        "found": found.agg(F.count("*"), F.sum("offset")).first()[0],
        "tasks_of_lookup": last_scan().tasks_reported,
        "sound": verify(spark, store).where("is_sound and object_key is not null").count(),
        "merged": merge(spark, store).files_merged,
    }
    log_store = f"{store}-of-a-log"
    messages = spark.read.format("tierdex-log").option("bytesPerPartition", "4000").load(log_store)
    totals = messages.agg(F.count("*"), F.sum("offset"), F.sum(F.length("body"))).first()
    some = spark.read.format("tierdex-log").option("topic", "a").option("endOffset", "10")
    result |= {
        "messages": list(totals),
        "files_of_messages": last_scan().files_read,
        "some_messages": some.load(log_store).count(),
    }
    stream = spark.readStream.format("tierdex-log").option("maxMessagesPerTrigger", "150")
    rows = stream.load(log_store).select("topic", "queue_id", "offset")
    query = rows.writeStream.format("json").trigger(availableNow=True)
    query = query.option("checkpointLocation", f"{scratch}/checkpoint").start(f"{scratch}/streamed")
    query.awaitTermination()
    result["batches"] = query.lastProgress["batchId"] + 1
    (Path(scratch) / "result").write_text(json.dumps(result))
    spark.stop()


def parent_of(pid):
    """Return the parent of a process: of the Python daemon it is the executor."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
