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
from springtide.runtime.options import Options
from springtide.runtime.spark.job import SparkExecutor
from springtide.runtime.standby import Standby, Successor, check_cancelled, lead_of
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Overtaken
from springtide.state.errors import AwayError

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
    begin: Callable[[Plan, Options, Callable[[], None]], Run],
) -> Run:
    """Wait for this run's turn, and begin, in the form that the query has by then. A checkpoint that is another query's is refused before that."""
    lead = lead_of(standby, checkpoint, options.durability)
    try:
        successor = Successor(plan, options, checkpoint, standby)
        keep_warm = _Warm(spark, successor)
        while True:
            sighting = lead.wait(keep_warm)
            try:
                successor.follow()
            except (OSError, AwayError) as error:  # a store that is away: it is this run's turn when it is back
                standby.say_away(error)
                check_cancelled(standby)
                time.sleep(standby.signs)
                continue
            options = replace(successor.options, sighting=sighting, signs=standby.signs)
            try:
                return begin(successor.plan, options, lead.resign)
            except Overtaken:  # another of those who stand by was faster
                continue
    except BaseException:
        lead.resign()
        raise


class _Warm:
    """Keeps the JVM and the workers ready."""

    def __init__(self, spark: SparkSession, successor: Successor) -> None:
        """Start everything once."""
        self._successor = successor
        self._executor = SparkExecutor(spark.sparkContext, successor.plan)
        self._slots = spark.sparkContext.defaultParallelism
        self._last = float("-inf")
        self()
        _stream_once(spark)

    def __call__(self) -> None:
        """Call the workers, if it is time; they unpack the query as it is by now."""
        if time.monotonic() - self._last >= _WARM:
            self._last = time.monotonic()
            if self._successor.look():
                self._executor = self._executor.replaced(self._successor.plan)
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
