"""A Spark session with settings that suit the engine."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from springtide.query.errors import QueryError, shown
from springtide.sparks import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    # a task that waits for a slot near its input leaves the other nodes idle
    "spark.locality.wait": "0s",
    # except for a moment, if its state is on an executor that is about to be free
    "spark.locality.wait.process": "200ms",
    # blobs are Arrow; compressing them again costs more than it saves on one machine
    "spark.shuffle.compress": "false",
    # an epoch is a job: the driver need not remember a thousand of them, UI or not
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    # each task has one core
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    # workers keep what an epoch has freed for the next one: otherwise the system takes it back and fills it with zeros again
    "spark.executorEnv._RJEM_MALLOC_CONF": "dirty_decay_ms:10000",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
"""Those of every version of Spark; `sparks` has the others."""


def session(master: str = "local[*,4]", *, name: str = "springtide", **settings: str) -> SparkSession:
    """Make (or find) a Spark session with settings that suit the engine; `local[N,4]` retries tasks, as a cluster does.

    Further settings are given with `_` for `.`, `session(spark_driver_memory="4g")`, or by their own names, which are taken as they are:
    `session(**{"spark.sql.catalog.spark_catalog": "…"})`.
    """
    if not isinstance(master, str):
        hint = "write for example 'local[2]' or 'spark://host:7077'"
        raise QueryError("(spark_session)", f"master={shown(master)} does not say where Spark runs", hint)
    from pyspark import __version__  # only those who use Spark wait for the import
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # local mode: workers inherit the driver's environment
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody outside this machine needs to reach it
    builder = SparkSession.builder.master(master).appName(name)
    given = {named(k): v for k, v in settings.items()}
    for key, value in (SETTINGS | settings_of(__version__) | given).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # what goes wrong reaches the caller as an exception
    return spark


def found_or_made() -> SparkSession:
    """Return the session of this process; without one, make one on this machine."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or session()


def named(setting: str) -> str:
    """Return the name of a setting that may have been written as a keyword; one with a dot in it is a name already.

    >>> named("spark_driver_memory"), named("spark.sql.catalog.spark_catalog")
    ('spark.driver.memory', 'spark.sql.catalog.spark_catalog')
    """
    return setting if "." in setting else setting.replace("_", ".")
