"""A run that stands by on Spark: everything is started and warm before it is its turn."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from springtide.compiler.plan import Plan
from springtide.runtime.identity import identity
from springtide.runtime.options import Options
from springtide.runtime.spark.job import SparkExecutor
from springtide.runtime.standby import Standby, lead_of
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Overtaken
from springtide.state.log import Log
from springtide.state.names import MARKER

if TYPE_CHECKING:
    from springtide.runtime.spark.run import Run

_WARM = 20.0
"""Seconds between two calls of the workers: Spark ends those that have been idle for a minute."""
_FIRST = 60.0
"""Seconds that a first streaming query may take, which only makes the JVM load what one needs."""


def stand_by(
    spark: SparkSession,
    plan: Plan,
    checkpoint: Checkpoint,
    standby: Standby,
    options: Options,
    begin: Callable[[Options, Callable[[], None]], Run],
) -> Run:
    """Wait for this run's turn, and begin. A checkpoint that is another query's is refused before that."""
    lead = lead_of(standby, checkpoint, options.durability)
    try:
        _check(checkpoint, options, plan)
        keep_warm = _Warm(spark, plan)
        while True:
            sighting = lead.wait(keep_warm)
            try:
                return begin(replace(options, sighting=sighting, signs=standby.signs), lead.resign)
            except Overtaken:  # another of those who stand by was faster
                continue
    except BaseException:
        lead.resign()
        raise


def _check(checkpoint: Checkpoint, options: Options, plan: Plan) -> None:
    store = checkpoint.remote or options.durability.store or checkpoint.store
    if store.exists(MARKER):
        checkpoint.check(identity(plan), store.read(MARKER), Log(store))


class _Warm:
    """Keeps the JVM and the workers ready."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        """Start everything once."""
        self._executor = SparkExecutor(spark.sparkContext, plan)
        self._slots = spark.sparkContext.defaultParallelism
        self._last = float("-inf")
        self()
        _stream_once(spark)

    def __call__(self) -> None:
        """Call the workers, if it is time."""
        if time.monotonic() - self._last >= _WARM:
            self._last = time.monotonic()
            self._executor.warm_up(self._slots)


def _stream_once(spark: SparkSession) -> None:
    """Run an empty streaming query: the first one of a JVM takes a second or two until it has loaded what it needs."""
    called = threading.Event()

    def note(rows: DataFrame, number: int) -> None:
        called.set()

    with tempfile.TemporaryDirectory(prefix="springtide-") as folder:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        query = rows.writeStream.foreachBatch(note).option("checkpointLocation", folder).start()
        try:
            called.wait(_FIRST)
        finally:
            query.stop()
