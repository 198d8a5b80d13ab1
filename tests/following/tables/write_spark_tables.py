"""Writes Delta and Iceberg tables with their own runtimes, for test_spark_tables.py: a program of its own.

    PYTHON write_spark_tables.py FOLDER

It runs in a Python with pyspark 4.1, for which both projects have runtimes on Maven, and needs nothing else.
Beside each table it leaves NAME.json: the ids that the table has, by version or snapshot.
"""

import json
import sys

PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
PROPERTIES = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.enableInCommitTimestamps": "true"},
    "by_id": {"delta.columnMapping.mode": "id"},
    "checkpoints": {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"},
    "widened": {"delta.enableTypeWidening": "true"},
}
ICEBERG = {
    "copied": (2, "copy-on-write"),
    "positions": (2, "merge-on-read"),
    "v3": (3, "merge-on-read"),
}


def session(folder):
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"{folder}/ice",
    }.items():
        made = made.config(name, value)
    return made.getOrCreate()


def change(spark, name, rows):
    """Change a table as its users do: each statement is a snapshot, or several."""
    yield spark.range(0, rows).selectExpr("cast(id as int) id", "concat('n', id % 7) name")
    yield f"delete from {name} where id % 10 = 3"
    yield f"update {name} set name = 'other' where id < 50"
    yield spark.range(rows, rows + 20).selectExpr("cast(id as int) id", "'late' name")
    yield f"delete from {name} where id between 100 and 120"
    yield (
        f"merge into {name} t using (select id + 5 as id from {name} where id < 20) s on t.id = s.id "
        "when matched then update set name = 'merged'"
    )


def write_delta(spark, folder, table, properties):
    place = f"{folder}/delta/{table}"
    name = f"delta.`{place}`"
    said = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    options = f"tblproperties ({said})" if said else ""
    spark.sql(f"create table {name} (id int, name string) using delta {options}")
    for step in change(spark, name, 300):
        if isinstance(step, str):
            spark.sql(step)
        else:
            step.write.format("delta").mode("append").save(place)
    if table == "mapped":
        spark.sql(f"alter table {name} rename column name to title")
        spark.sql(f"insert into {name} values (900, 'new')")
    if table == "widened":
        spark.sql(f"alter table {name} alter column id type bigint")
        spark.sql(f"insert into {name} values (90000000000, 'wide')")
    spark.sql(f"optimize {name}")
    spark.sql(f"restore table {name} to version as of 3")
    newest = spark.sql(f"describe history {name}").count() - 1
    ids = {
        version: [
            row.id for row in spark.sql(f"select id from {name} version as of {version}").collect()
        ]
        for version in range(1, newest + 1)
    }
    with open(f"{place}.json", "w") as file:
        json.dump(ids, file)


def write_iceberg(spark, folder, table, version, mode):
    name = f"ice.db.{table}"
    spark.sql(
        f"create table {name} (id int, name string) using iceberg "
        f"tblproperties ('format-version'='{version}', "
        + ", ".join(f"'write.{kind}.mode'='{mode}'" for kind in ("delete", "update", "merge"))
        + ")"
    )
    for step in change(spark, name, 300):
        if isinstance(step, str):
            spark.sql(step)
        else:
            step.writeTo(name).append()
    spark.sql(
        f"call ice.system.rewrite_data_files(table => 'db.{table}', options => map('rewrite-all','true'))"
    )
    ids = {}
    for row in spark.sql(f"select snapshot_id from {name}.snapshots").collect():
        found = spark.sql(f"select id from {name} version as of {row.snapshot_id}").collect()
        ids[row.snapshot_id] = [each.id for each in found]
    with open(f"{folder}/ice/db/{table}.json", "w") as file:
        json.dump(ids, file)


def main(folder):
    spark = session(folder)
    for table, properties in PROPERTIES.items():
        write_delta(spark, folder, table, properties)
    for table, (version, mode) in ICEBERG.items():
        write_iceberg(spark, folder, table, version, mode)


if __name__ == "__main__":
    main(sys.argv[1])
