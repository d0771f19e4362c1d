"""What differs between the versions of Spark that a query can run on. Nothing else in the project asks which one it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from springtide.query.errors import QueryError, shown

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OLDEST = (4, 0)
"""The oldest Spark that a query runs on: what streaming DataFrames, RDDs and the scheduler offer has not changed since."""

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_SINCE_4_1: dict[str, str] = {
    # TCP costs a stall of 40 ms (delayed ACK) per Python stage
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    _FILE_MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
}
_IN_4_0: dict[str, str] = {
    _FILE_MANAGER: "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
}


def settings_of(version: str) -> dict[str, str]:
    """Return the settings that a version of Spark has, or spells, in a way of its own.

    >>> len(settings_of("4.0.5")), len(settings_of("4.1.0")), settings_of("4.1.0") == settings_of("4.3.0")
    (1, 3, True)
    """
    return _IN_4_0 if release(version) < (4, 1) else _SINCE_4_1


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a DataFrame as Arrow has them, times in UTC."""
    from pyspark import __version__  # only who uses Spark waits for it
    from pyspark.sql.pandas.types import to_arrow_schema

    options: dict[str, Any] = {"timezone": "UTC"} if release(__version__) >= (4, 2) else {"timestamp_utc": True}
    return to_arrow_schema(schema, **options)


def release(version: str) -> tuple[int, int]:
    """Return the numbers of a version that count here.

    >>> release("4.3.0"), release("4.10.1-SNAPSHOT"), release("4.2.0.dev1")
    ((4, 3), (4, 10), (4, 2))
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else OLDEST


def check_session(step: str, spark: Any) -> None:
    """Refuse what a query cannot run on: a Spark Connect session, a Spark that is too old, what is no session at all."""
    if is_connect(spark):
        raise QueryError(
            step,
            "a Spark Connect session cannot run it: it can send no tasks of ours to executors, and no function of an epoch to the driver",
            "run the program where Spark's driver runs: st.spark_session('local[*,4]'), or st.spark_session('spark://…' | 'yarn' | 'k8s://…'), "
            "or spark-submit; unset SPARK_REMOTE and SPARK_CONNECT_MODE_ENABLED",
        )
    if not hasattr(spark, "sparkContext"):
        raise QueryError(step, f"{shown(spark)} is not a Spark session", "give one: query.start(st.spark_session(…))")
    if release(str(spark.version)) < OLDEST:
        raise QueryError(
            step, f"it cannot run on Spark {spark.version}", f"use Spark {OLDEST[0]}.{OLDEST[1]} or a newer one"
        )


def is_connect(thing: Any) -> bool:
    """Return whether a session or a DataFrame is one of Spark Connect's: a client of a driver elsewhere.

    By the name of its module: to import Connect takes packages that nobody else needs.

    >>> is_connect(3)
    False
    """
    return any(base.__module__.startswith("pyspark.sql.connect.") for base in type(thing).__mro__)
