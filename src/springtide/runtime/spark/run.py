"""A query at work on Spark, and the handle to it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from springtide.compiler.plan import Plan
from springtide.query.errors import SpringtideError
from springtide.runtime.engine import Engine, Options
from springtide.runtime.spark.job import SparkExecutor
from springtide.state.checkpoint import Checkpoint
from springtide.state.manifest import Manifest

_POLL = 0.02
"""Seconds between two looks at sources that have nothing."""


class Run:
    """A running query. It ends by itself with its input, or when it is stopped."""

    def __init__(
        self, plan: Plan, spark: SparkSession, checkpoint: str | Path, options: Options, trigger: str | None
    ) -> None:
        """Start the query."""
        self._spark = spark
        self._executor = SparkExecutor(spark.sparkContext, plan)
        self._engine = Engine(plan, Checkpoint(checkpoint), self._executor, options)
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._between = threading.Lock()
        self._failure: BaseException | None = None
        self._history: list[Manifest] = []
        try:
            self._query = self._start(trigger)
        except BaseException:
            self._engine.close()
            raise
        threading.Thread(target=self._watch, name=f"springtide-{plan.graph.name}", daemon=True).start()

    # ── for people ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def active(self) -> bool:
        """Whether the query is still at work."""
        return not self._finished.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; raise what stopped the query, if it was an error. False when the time is over first."""
        if not self._finished.wait(timeout):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Finish the epoch at work, and end. What the sinks have is whole; a later start goes on from here."""
        self._stopping.set()
        self.wait()

    def status(self) -> dict[str, Any]:
        """Say how far the query is: epoch, rows, side outputs, instances, state."""
        return status_of(self._engine.manifest)

    def epochs(self) -> list[Manifest]:
        """Give the manifests of the last epochs of this run."""
        return list(self._history)

    def metrics(self) -> list[dict[str, Any]]:
        """Give what was measured in the last epochs of this run."""
        return [m.metrics | {"epoch": m.epoch} for m in self._history]

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, trigger: str | None) -> StreamingQuery:
        ticks = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = ticks.writeStream.foreachBatch(self._batch).queryName(None or f"springtide-{id(self)}")
        writer = writer.option("checkpointLocation", str(self._engine.checkpoint.root / "spark"))
        if trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        return writer.start()

    def _batch(self, rows: DataFrame, number: int) -> None:
        """Run one epoch: Structured Streaming calls this for every micro-batch."""
        try:
            engine = self._engine
            if engine.manifest.epoch >= 0 and not self._history:
                engine.publish(engine.manifest)  # it may have been cut short before this start
            while not engine.manifest.ended and not self._stopping.is_set():
                if engine.take_commands():
                    break
                if engine.has_work():
                    self._remember(engine.run(engine.manifest.epoch + 1))
                    return
                time.sleep(_POLL)
            self._stopping.set()
        except BaseException as error:
            self._failure = error
            self._stopping.set()

    def _remember(self, manifest: Manifest) -> None:
        self._history.append(manifest)
        del self._history[:-1000]

    def _watch(self) -> None:
        """End the streaming query once nothing runs any more: interrupting a job would make Spark noisy."""
        self._stopping.wait()
        try:
            self._query.stop()
        except StreamingQueryException as error:
            self._failure = self._failure or error
        finally:
            self._engine.close()
            if self._failure is not None and not isinstance(self._failure, SpringtideError):
                self._failure = _readable(self._failure)
            self._finished.set()


def status_of(manifest: Manifest) -> dict[str, Any]:
    """Sum a manifest up."""
    sources = {
        name: {"accepted": s.accepted, "late": s.late, "rejected": s.rejected, "ended": s.ended}
        for name, s in manifest.sources.items()
    }
    subqueries = {
        name: {
            "instances": m.instances,
            "segments": len(manifest.state[name].segments) if name in manifest.state else 0,
            "state_rows": sum(s.rows for s in manifest.state[name].segments) if name in manifest.state else 0,
            "state_bytes": sum(s.bytes for s in manifest.state[name].segments) if name in manifest.state else 0,
        }
        for name, m in manifest.maps.items()
    }
    return {
        "epoch": manifest.epoch,
        "ended": manifest.ended,
        "sources": sources,
        "subqueries": subqueries,
        "metrics": manifest.metrics,
    }


def _readable(error: BaseException) -> SpringtideError:
    """Find the line that matters in what Spark says of a failed job."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("springtide.") and "Error: " in line]
    last = (
        ours[-1].partition(": ")[2]
        if ours
        else next((line for line in reversed(lines) if "Error" in line), lines[0] if lines else repr(error))
    )
    failure = SpringtideError(
        f"the epoch failed and was not committed: {last}; the next start goes on from the last committed epoch"
    )
    failure.__cause__ = error
    return failure
