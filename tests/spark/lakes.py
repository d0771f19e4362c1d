"""Reads a table of a lake with Spark and the lake's own library, in a process of its own: python -m tests.spark.lakes KIND PACKAGES FOLDER.

A JVM that is up cannot be given other jars. The rows go to a Parquet file, `rows.parquet`, in the folder that the table is in.
"""

from __future__ import annotations

import sys
from pathlib import Path

SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.default.type": "jdbc",
        "spark.sql.catalog.default.uri": "jdbc:sqlite:{folder}/catalog.db",
        "spark.sql.catalog.default.warehouse": "{folder}/lake",
        "spark.sql.catalog.default.jdbc.schema-version": "V1",
    },
}


def main(kind: str, packages: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.jars.packages", packages)
    plain = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.driver.host": "127.0.0.1"}
    for key, value in (plain | SETTINGS[kind]).items():
        builder = builder.config(key, value.format(folder=folder))
    spark = builder.getOrCreate()
    rows = (
        spark.read.format("delta").load(f"{folder}/table")
        if kind == "delta"
        else spark.read.table("default.lake.numbers")
    )
    rows.coalesce(1).write.parquet(f"{folder}/rows.parquet")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
    assert Path(sys.argv[3], "rows.parquet").exists()
