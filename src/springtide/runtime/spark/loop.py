"""The epochs of a run on Spark, one after the other: in Spark's micro-batches, beside them while Spark has no rows, and what is asked for between two epochs."""

from __future__ import annotations

import json
import queue
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from springtide.query.errors import QueryError, SpringtideError, shown
from springtide.runtime.committing import Batch
from springtide.runtime.engine import Engine
from springtide.runtime.spark import records
from springtide.runtime.spark.faults import failure_of_epoch, failure_of_spark
from springtide.runtime.spark.job import SparkExecutor
from springtide.runtime.spark.results import Results
from springtide.runtime.spark.rows import MicroBatch, combined
from springtide.sources.spark import SparkSource
from springtide.state.manifest import Manifest
from springtide.state.spark_records import digest

T = TypeVar("T")

AVAILABLE_NOW = "available now"
POLL = 0.02
"""Seconds between two looks at sources that have no rows."""
_BESIDE = 0.1
"""Seconds between two checks for work outside Spark's micro-batches, where Spark reads all sources."""
_BEAT = 10.0
"""Seconds of epochs in one micro-batch of Spark, if Spark reads nothing and has no offsets to keep: no epoch can run while Spark goes from one to the next."""


@dataclass
class CurrentForm:
    """What belongs to the form that a query has now; another form has other parts."""

    executor: SparkExecutor
    results: Results


class EpochLoop:
    """Runs epochs until the input ends or somebody says stop."""

    def __init__(
        self,
        spark: SparkSession,
        engine: Engine,
        form: CurrentForm,
        sources: Mapping[str, SparkSource],
        committed: Callable[[Manifest], None],
    ) -> None:
        """Begin with nothing running; `sources` are those that Spark reads, and `committed` is told of every epoch."""
        self.form = form
        self.sources = sources
        self.stopping, self.finished = threading.Event(), threading.Event()
        self.working = threading.Lock()
        """Held while an epoch runs, or something that an epoch must not be beside."""
        self.failure: BaseException | None = None
        self._spark, self._engine, self._committed = spark, engine, committed
        self.group = (
            f"springtide-{engine.plan.graph.name}-{uuid.uuid4().hex[:8]}"  # a query may run on several checkpoints
        )
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._available_now = self._paced = False
        self._pace, self._last_epoch = 0.0, 0.0
        self._query: StreamingQuery | None = None
        self._own: Path | None = None

    def start(self, trigger: str | None, pace: float) -> None:
        """Start the streaming query, with at least `pace` seconds between two epochs if there is a trigger."""
        self._available_now = trigger == AVAILABLE_NOW
        self._paced = trigger is not None and not self._available_now
        if self.sources:
            rows = combined(self.sources)
        else:
            rows = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = rows.writeStream.foreachBatch(self._batch).queryName(self.group)
        if self._available_now and self.sources:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None and self._paced:
            writer = writer.trigger(processingTime=trigger)
            self._pace = pace
        if self.sources:
            self._own = self._engine.folder_for_spark()
            records.check(self._engine.root, self._own, self._engine.manifest)
        else:  # what Spark says of nothing need not be kept
            self._own = Path(tempfile.mkdtemp(prefix="springtide-", dir=self._spark.sparkContext._temp_dir))
        self._engine.begin()
        self._query = writer.option("checkpointLocation", f"file://{self._own}").start()

    def ask(self, action: Callable[[], T]) -> T:
        """Have something done between two epochs, and wait until it is done."""
        done: Future[T] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except Exception as error:
                done.set_exception(error)

        self._requests.put(act)
        while True:
            active = not self.finished.is_set()
            try:
                return done.result(timeout=0.1)
            except TimeoutError:
                if done.done():
                    return done.result()
                if not active:
                    raise SpringtideError("the query is not running any more") from None

    def stop(self, *, at_once: bool = False) -> None:
        """Have the loop end after the current epoch, or, with `at_once`, without it."""
        self.stopping.set()
        self._engine.wait_no_longer()
        if at_once:
            self._spark.sparkContext.cancelJobGroup(self.group)

    def remember(self, manifest: Manifest) -> None:
        """Take note of an epoch that is committed."""
        self._last_epoch = time.monotonic()
        self._committed(manifest)

    def end_between_epochs(self) -> None:
        """End the streaming query while no job runs: interrupting one would make Spark noisy."""
        query = self._query
        assert query is not None
        try:
            self._beside(query)
        finally:
            ended_by_spark = not self.stopping.is_set()
            self.stopping.set()  # a micro-batch that has lost its query finishes its epoch, and no more
            with self.working:
                pass
            error = query.exception() if ended_by_spark else None
            if error is not None:
                self.failure = self.failure or self._taken_over() or failure_of_spark(error)
            query.stop()

    def forget_own(self) -> None:
        """Remove what Spark wrote where it reads nothing."""
        if self._own is not None and not self.sources:
            shutil.rmtree(self._own, ignore_errors=True)

    def _batch(self, rows: DataFrame, number: int) -> None:
        """Run one epoch: Structured Streaming calls this for every micro-batch."""
        try:
            with self.working:
                self._spark.sparkContext.setJobGroup(self.group, f"epoch {self._engine.manifest.epoch + 1}")
                if self.sources:
                    self._epoch_of_rows(rows, number)
                else:
                    self._epochs_when_due()
        except BaseException as error:
            if not self.stopping.is_set() and not self._engine.is_told_to_stop:
                self.failure = failure_of_epoch(error)
            self.stopping.set()
            if self.sources:
                raise  # Spark must not consider the micro-batch done

    def _epoch_of_rows(self, rows: DataFrame, number: int) -> None:
        engine, own = self._engine, self._own
        assert own is not None
        offsets = digest(own, number)
        if records.is_taken(engine.root, engine.manifest, number, offsets):
            return  # committed before a crash, and published again at the start
        if self._between_epochs():
            raise SpringtideError("the query was stopped before this micro-batch")
        engine.has_work()
        engine.spark_waits(records.waiting(list(self.sources), self._progress()))
        self.form.executor.rows = MicroBatch(rows, self.sources)
        try:
            self.remember(engine.run(Batch(number, offsets)))
        finally:
            self.form.executor.rows = None

    def _progress(self) -> dict[str, Any] | None:
        """Return what Spark reports about the previous micro-batch, if there is one."""
        progress = None if self._query is None else self._query.lastProgress
        found: dict[str, Any] | None = None if progress is None else json.loads(progress.json)
        return found

    def _epochs_without_a_batch(self, query: StreamingQuery) -> None:
        """Continue while Spark has no rows: Spark then runs no epochs, but other sources and time do not wait for it."""
        if self._between_epochs() or time.monotonic() < self._last_epoch + self._pace:
            return
        status = query.status
        if not status["isDataAvailable"] and status["message"].startswith("Waiting"):
            self._engine.spark_has_nothing()
            self._epoch_if_due()

    def _epoch_if_due(self) -> bool:
        if not self._engine.has_work():
            return False
        self._spark.sparkContext.setJobGroup(self.group, f"epoch {self._engine.manifest.epoch + 1}")
        self.remember(self._engine.run())
        return True

    def _epochs_when_due(self) -> None:
        """Run epochs of sources that are read in Python when they have rows: one with a trigger, otherwise as many as fit into a beat."""
        engine, until = self._engine, 0.0 if self._paced else time.monotonic() + _BEAT
        while not engine.manifest.ended and not self.stopping.is_set():
            if self._between_epochs():
                break
            if engine.has_work():
                self.remember(engine.run())
                if time.monotonic() >= until and not engine.manifest.ended:
                    return
                continue
            if self._available_now:
                break
            time.sleep(POLL)
        self.stopping.set()

    def _between_epochs(self) -> bool:
        """Do what people asked for; return True if the run is to stop."""
        while not self._requests.empty():
            self._requests.get()()
        if self._engine.take_commands():
            self.stopping.set()
        return self.stopping.is_set()

    def _taken_over(self) -> SpringtideError | None:
        """Return the error of a run that lost its checkpoint: Spark may notice it first, since its records are gone."""
        try:
            self._engine.check()
        except SpringtideError as error:
            return error
        return None

    def _beside(self, query: StreamingQuery) -> None:
        """Do what has to be done between micro-batches; after the last one, take what is left of the other sources."""
        pause = POLL if self._engine.reads and self.sources else _BESIDE
        while not self.stopping.wait(pause) and query.isActive:
            if self.sources and self.working.acquire(blocking=False):
                try:
                    self._epochs_without_a_batch(query)
                finally:
                    self.working.release()
        if self.sources and self._available_now and query.exception() is None:
            with self.working:
                while not self._between_epochs() and self._epoch_if_due():
                    pass


def pace_of(spark: SparkSession, query: str, trigger: str | None) -> float:
    """Return the least seconds between two epochs as Spark reads a trigger; refuse one that it cannot read."""
    if trigger is None or trigger == AVAILABLE_NOW:
        return 0.0
    jvm: Any = spark.sparkContext._jvm
    try:
        if not isinstance(trigger, str):
            raise TypeError
        return float(jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(trigger).intervalMs()) / 1000
    except (IllegalArgumentException, TypeError):
        problem = f"trigger={shown(trigger)} is not a length of time"
        raise QueryError(f"{query} (query)", problem, "write for example '5 seconds', or 'available now'") from None
