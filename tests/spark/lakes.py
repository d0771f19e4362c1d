"""Reads tables of lakes with Spark and the lake's own library, in a process of its own: python -m tests.spark.lakes, told what to do on its input.

A JVM that is up cannot be given other jars. It is told settings of Spark and for each table how it is found; the rows of each go to a folder of Parquet files.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(told: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    for key, value in told["settings"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for format, place, out in told["tables"]:
        rows = spark.read.table(place) if format == "iceberg" else spark.read.format(format).load(place)
        rows.coalesce(1).write.parquet(out)
    spark.stop()


if __name__ == "__main__":
    main(json.load(sys.stdin))
