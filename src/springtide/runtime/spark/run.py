"""A query running on Spark, and the handle to it."""

from __future__ import annotations

import json
import queue
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from springtide.compiler.pipeline import compile
from springtide.compiler.plan import Plan
from springtide.connectors import Source
from springtide.elastic.decisions import Decisions
from springtide.elastic.policies.policy import Policy
from springtide.elastic.protocols import ProtocolChoice
from springtide.elastic.resources.spark import SparkExecutors, resources_of
from springtide.elastic.settings import Elastic, elastic_of
from springtide.elastic.snapshot import Snapshot
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.graph import Graph
from springtide.runtime.backfilling import Backfill, history_of, plan_of
from springtide.runtime.committing import Batch
from springtide.runtime.engine import Engine
from springtide.runtime.identity import identity
from springtide.runtime.options import Options
from springtide.runtime.spark import records
from springtide.runtime.spark.faults import GONE, is_gone
from springtide.runtime.spark.job import SparkExecutor
from springtide.runtime.spark.probe import check_executors
from springtide.runtime.spark.results import Results
from springtide.runtime.spark.rows import MicroBatch, check_same, combined, spark_sources
from springtide.runtime.spark.warmth import Warmth
from springtide.runtime.status import status_of
from springtide.state.checkpoint import Checkpoint
from springtide.state.manifest import Manifest
from springtide.state.savepoints import save
from springtide.state.spark_records import digest
from springtide.state.stores import Store

if TYPE_CHECKING:
    from springtide.runtime.exporting import Exporter

T = TypeVar("T")

AVAILABLE_NOW = "available now"
_POLL = 0.02
"""Seconds between two looks at sources that have no rows."""
_BESIDE = 0.1
"""Seconds between two checks for work outside Spark's micro-batches, where Spark reads all sources."""
_BEAT = 10.0
"""Seconds of epochs in one micro-batch of Spark, if Spark reads nothing and has no offsets to keep: no epoch can run while Spark goes from one to the next."""
_WARM = 10.0
"""Seconds that workers may take to unpack another form of the query; after that it begins all the same."""
_REMEMBERED = 1000
"""The number of manifests of past epochs that are kept in memory."""


class Run:
    """A running query. It ends by itself with its input, or when it is stopped."""

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        checkpoint: Checkpoint,
        options: Options,
        trigger: str | None,
        exporter: Exporter | None = None,
        resign: Callable[[], None] | None = None,
    ) -> None:
        """Start the query; from now on the run owns the exporter. `resign` lets the next standby begin."""
        durable = options.durability
        is_local = str(spark.sparkContext.master).startswith("local")
        if durable.seconds > 0 and durable.shared_memory is None and checkpoint.remote is None and not is_local:
            raise QueryError(
                "(durability)",
                f"state that is not durable yet (every={durable.every!r}) must be where all executors of a cluster see it",
                'give shared_memory= such a folder, leave it at every="epoch", or have the checkpoint in an object store',
            )
        self._name, self._spark, self._results = plan.graph.name, spark, Results(plan)
        self._executor = SparkExecutor(spark.sparkContext, plan)
        self._spark_reads = spark_sources(plan)
        executors = options.elastic.executors if options.elastic else None
        resources = resources_of(spark.sparkContext, executors, lambda tasks: self._executor.warm_up(tasks))
        self._executor.slots = resources.slots
        if isinstance(resources, SparkExecutors):
            self._executor.ready = resources.ready
        self._engine = Engine(plan, checkpoint, self._executor, options, resources)
        self._executor.note = self._engine.note
        self._engine.find_errors_with(_said)
        if options.reload is not None:
            self._engine.reload = partial(self._reload, options)
        self._group = f"springtide-{plan.graph.name}-{uuid.uuid4().hex[:8]}"  # a query may run on several checkpoints
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping, self._finished = threading.Event(), threading.Event()
        self._at_once = False
        self._working, self._replacing = threading.Lock(), threading.Lock()
        self._failure: BaseException | None = None
        self._history: list[Manifest] = []
        self._exporter, self._resign = exporter, resign
        self._available_now = trigger == AVAILABLE_NOW
        self._paced = trigger is not None and not self._available_now
        self._pace, self._last_epoch = 0.0, 0.0
        self._query: StreamingQuery | None = None
        self._own: Path | None = None
        try:
            check_executors(spark.sparkContext, self._engine.tiers, durable)
        except BaseException:
            self._engine.close()
            raise
        self._warmth = Warmth(lambda: self._executor.workers(), lambda workers: self._executor.call_workers(workers))
        try:
            self._query = self._start(trigger)
        except BaseException:
            self._warmth.close()
            self._engine.close()
            self._forget_own()
            raise
        threading.Thread(target=self._watch, name=self._group, daemon=True).start()

    # ── for people ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        """The name of the query."""
        return self._name

    @property
    def active(self) -> bool:
        """Whether the query is still running."""
        return not self._finished.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, and raise the error that stopped the query, if there was one. Return False if the time runs out first."""
        if not self._finished.wait(timeout):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, *, at_once: bool = False) -> None:
        """Finish the current epoch, and end; a later start continues from here.

        `at_once` abandons the epoch instead: it is not committed and will be done again. A query with rows that Spark
        reads finishes its epoch in any case, so that Spark's offsets and ours agree.
        """
        self._at_once = at_once and not self._spark_reads
        self._stopping.set()
        self._engine.wait_no_longer()
        if self._at_once:
            self._spark.sparkContext.cancelJobGroup(self._group)
        self.wait()

    def results(self, sink: str | None = None) -> Iterator[pl.DataFrame]:
        """Return the rows of a memory sink as they are published, epoch after epoch: each once, including those from before this call.

        The iterator ends with the run, and raises the error that stopped it, if there was one. Rows of earlier runs are not included.
        """
        return self._results.of(sink, self._finished, self.wait)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Show a panel that follows the run in a notebook."""
        from springtide.runtime.spark.panel import bundle

        return bundle(self)

    def __enter__(self) -> Run:
        """Let `with query.start(…) as run:` stop the query at its end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Stop; an error in the block is not hidden by an error in the run."""
        with suppress(SpringtideError) if error is not None else nullcontext():
            self.stop()

    def scale(self, step: str, instances: int, *, protocol: ProtocolChoice | None = None) -> None:
        """Give the subquery of a step another number of instances, from the next epoch on; `protocol` as in `st.Elastic`."""
        self._ask(lambda: self._engine.scale(step, instances, protocol))

    def move(self, step: str, buckets: Sequence[int], to: int, *, protocol: ProtocolChoice | None = None) -> None:
        """Give some buckets of a step to one of its instances, from the next epoch on."""
        self._ask(lambda: self._engine.move(step, buckets, to, protocol))

    def rebalance(self, step: str, *, protocol: ProtocolChoice | None = None) -> None:
        """Even out the load of a step's instances, from the next epoch on."""
        self._ask(lambda: self._engine.rebalance(step, protocol))

    def pause_elasticity(self) -> None:
        """Allow only manual changes until `resume_elasticity`."""
        self._ask(self._engine.pause_elasticity)

    def resume_elasticity(self) -> None:
        """Let the policy decide again."""
        self._ask(self._engine.resume_elasticity)

    def replace(
        self,
        query: Graph | None = None,
        *,
        elastic: bool | Elastic | Policy | None = None,
        history: bool | Sequence[str] = False,
    ) -> None:
        """Replace this form of the query by another, between two epochs and without a pause (SM-3).

        What stays keeps its state and its place in the input; what cannot be taken over is refused with an `st.QueryError`, before anything changes. If the
        first epoch of the new form fails, the old one continues, and an `st.TakenBackError` says why. The next start must use the new form.

        `elastic` says what decides about instances from now on, as in `start`; with False nothing does. Without it, elasticity stays as it is.

        Steps with state that are new begin with nothing, or, if they are named in `history`, with what they would have by now if they had been there
        from the beginning (True: all of them). Their sources are read again for that, while the old form continues.
        """
        if query is not None:
            self._replace(
                lambda: (query, self._engine.form.elastic if elastic is None else elastic_of(elastic)), history
            )
        elif elastic is not None:
            settings = elastic_of(elastic)
            self._ask(lambda: self._engine.change_elasticity(settings))

    @property
    def checkpoint_root(self) -> Path:
        """Where its checkpoint is on this machine; for one in an object store, its cache."""
        return self._engine.root

    @property
    def checkpoint_store(self) -> Store:
        """Where its checkpoint is."""
        return self._engine.store

    def checkpoint_now(self) -> int:
        """Make the state durable between two epochs; return its epoch."""
        return self._ask(self._engine.checkpoint_now)

    def savepoint(self, name: str) -> Path | str:
        """Keep the state between two epochs under a name; return its folder or address, from which a query can be started."""

        def keep() -> Path | str:
            self._engine.checkpoint_now()
            return save(self.checkpoint_store, name)

        return self._ask(keep)

    @property
    def last_snapshot(self) -> Snapshot | None:
        """Return the measurements of the last epoch of this run; None if there is none yet."""
        return self._engine.snapshot

    def decisions(self, last: int | None = None) -> Decisions:
        """Return what has changed since the checkpoint began, why, and what it cost, oldest first; or only the `last` ones."""
        return Decisions(self._engine.decisions(last))

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds the metrics of this run, if they are exported."""
        return None if self._exporter is None else self._exporter.url

    def snapshots(self) -> list[Snapshot]:
        """Return the measurements of the epochs that the checkpoint remembers, oldest first."""
        return self._engine.snapshots()

    def attach(self, source: str, label: str, connector: Source) -> None:
        """Let a source read another input too, from the next epoch on (ST-3). Rows before the source's time are late."""
        self._ask(lambda: self._engine.attach(source, label, connector))

    def detach(self, source: str, label: str) -> None:
        """Stop reading an attached input, so that it no longer holds the others back (ST-3)."""
        self._ask(lambda: self._engine.detach(source, label))

    def status(self) -> dict[str, Any]:
        """Return how far the query has got: epoch, rows, side outputs, instances, state."""
        return status_of(self._engine.manifest)

    def epochs(self) -> list[Manifest]:
        """Return the manifests of the last epochs of this run."""
        return list(self._history)

    def metrics(self) -> list[dict[str, Any]]:
        """Return what was measured in the last epochs of this run."""
        return [m.metrics.to_json() | {"epoch": m.epoch} for m in self._history]

    def note(self, text: str) -> None:
        """Add something that people may want to know to the events."""
        self._engine.note(text)

    def events(self) -> list[tuple[float, str]]:
        """Return what happened besides epochs, with the times."""
        return list(self._engine.events)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, action: Callable[[], T]) -> T:
        """Have something done between two epochs, and wait until it is done."""
        done: Future[T] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except Exception as error:
                done.set_exception(error)

        self._requests.put(act)
        while True:
            active = self.active
            try:
                return done.result(timeout=0.1)
            except TimeoutError:
                if done.done():
                    return done.result()
                if not active:
                    raise SpringtideError("the query is not running any more") from None

    # ── another form ──────────────────────────────────────────────────────────────────────────────────────────────

    def _replace(self, read: Callable[[], tuple[Graph, Elastic | None]], history: bool | Sequence[str]) -> Manifest:
        """Replace the query by the one that is read, one such change after the other; return the manifest of its first epoch."""
        with self._replacing:
            query, elastic = read()
            plan, executor = self._prepare(query)
            names = history_of(self._engine.plan, plan, history)
            backfill = self._filled(names, plan) if names else None
            return self._ask(lambda: self._exchange(plan, executor, elastic, backfill))

    def _reload(self, options: Options) -> Future[Manifest]:
        """Begin to read the query again, and to replace it, in a thread: epochs continue until all is prepared."""
        done: Future[Manifest] = Future()

        def act() -> None:
            try:
                done.set_result(self._replace(options.read_again, options.history))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=act, name=f"{self._group}-reload", daemon=True).start()
        return done

    def _prepare(self, query: Graph) -> tuple[Plan, SparkExecutor]:
        """Do everything for a change that can be done while epochs continue: compile the query, and send it to the workers."""
        plan = compile(query, self._engine.plan.buckets)
        check_same(self._spark_reads, plan)
        identity(plan)  # it is computed here, and known from now on
        executor = self._executor.replaced(plan)
        done = executor.warm_up(self._executor.slots() or self._spark.sparkContext.defaultParallelism)
        until = time.monotonic() + _WARM
        while not done() and time.monotonic() < until:
            time.sleep(_POLL)
        return plan, executor

    def _filled(self, names: Sequence[str], plan: Plan) -> Backfill:
        """Build the history of new steps, but for a rest that can wait for the swap; an epoch of the old form comes between two slices."""
        part = plan_of(plan, names)
        backfill = self._ask(lambda: self._engine.backfill(names, plan, part, self._executor.replaced(part)))
        try:
            while not self._ask(lambda: self._engine.advance(backfill, plan)):
                pass
        except BaseException:
            with suppress(SpringtideError):
                self._ask(lambda: backfill.close(adopted=False))
            raise
        return backfill

    def _exchange(
        self, plan: Plan, executor: SparkExecutor, elastic: Elastic | None, backfill: Backfill | None = None
    ) -> Manifest:
        """Replace the query, in an epoch."""
        before, results = self._executor, self._results
        self._executor, self._results = executor, results.replaced(plan)
        try:
            manifest = self._engine.replace(plan, executor, elastic, backfill)
        except BaseException:
            self._executor, self._results = before, results
            raise
        self._remember(manifest)
        return manifest

    def _start(self, trigger: str | None) -> StreamingQuery:
        if self._spark_reads:
            rows = combined(self._spark_reads)
        else:
            rows = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = rows.writeStream.foreachBatch(self._batch).queryName(self._group)
        if self._available_now and self._spark_reads:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None and not self._available_now:
            writer = writer.trigger(processingTime=trigger)
            self._pace = _seconds(self._spark, trigger)
        if self._spark_reads:
            self._own = self._engine.folder_for_spark()
            records.check(self._engine.root, self._own, self._engine.manifest)
        else:  # what Spark says of nothing need not be kept
            self._own = Path(tempfile.mkdtemp(prefix="springtide-", dir=self._spark.sparkContext._temp_dir))
        self._engine.begin()
        return writer.option("checkpointLocation", f"file://{self._own}").start()

    def _batch(self, rows: DataFrame, number: int) -> None:
        """Run one epoch: Structured Streaming calls this for every micro-batch."""
        try:
            with self._working:
                self._spark.sparkContext.setJobGroup(self._group, f"epoch {self._engine.manifest.epoch + 1}")
                if self._spark_reads:
                    self._epoch_of_rows(rows, number)
                else:
                    self._epochs_when_due()
        except BaseException as error:
            if not self._stopping.is_set() and not self._engine.is_told_to_stop:
                self._failure = _readable(error)
            self._stopping.set()
            if self._spark_reads:
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
        engine.spark_waits(records.waiting(list(self._spark_reads), self._progress()))
        self._executor.rows = MicroBatch(rows, self._spark_reads)
        try:
            self._remember(engine.run(Batch(number, offsets)))
        finally:
            self._executor.rows = None

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
        self._spark.sparkContext.setJobGroup(self._group, f"epoch {self._engine.manifest.epoch + 1}")
        self._remember(self._engine.run())
        return True

    def _epochs_when_due(self) -> None:
        """Run epochs of sources that are read in Python when they have rows: one with a trigger, otherwise as many as fit into a beat."""
        engine, until = self._engine, 0.0 if self._paced else time.monotonic() + _BEAT
        while not engine.manifest.ended and not self._stopping.is_set():
            if self._between_epochs():
                break
            if engine.has_work():
                self._remember(engine.run())
                if time.monotonic() >= until and not engine.manifest.ended:
                    return
                continue
            if self._available_now:
                break
            time.sleep(_POLL)
        self._stopping.set()

    def _between_epochs(self) -> bool:
        """Do what people asked for; return True if the run is to stop."""
        while not self._requests.empty():
            self._requests.get()()
        if self._engine.take_commands():
            self._stopping.set()
        return self._stopping.is_set()

    def _remember(self, manifest: Manifest) -> None:
        self._last_epoch = time.monotonic()
        self._history.append(manifest)
        del self._history[:-_REMEMBERED]
        if self._exporter is not None and self._engine.snapshot is not None:
            self._exporter.observe(manifest, self._engine.snapshot)

    def _watch(self) -> None:
        """Wait for the end of the streaming query, and release everything, whatever happens to Spark: a caller may be waiting for this."""
        try:
            self._end_between_epochs()
        except Exception as error:
            self._failure = self._failure or _readable(error)
        try:
            self._stopping.set()
            self._engine.wait_no_longer()
            self._warmth.close()
            with self._working:  # the rest of an epoch may still be running, without Spark
                self._engine.close()
            self._forget_own()
            if self._exporter is not None:
                self._exporter.close()
        except Exception as error:
            self._failure = self._failure or _readable(error)
        try:
            if self._resign is not None:
                self._resign()
        except Exception as error:
            self._failure = self._failure or _readable(error)
        finally:
            self._finished.set()

    def _forget_own(self) -> None:
        """Remove what Spark wrote where it reads nothing."""
        if self._own is not None and not self._spark_reads:
            shutil.rmtree(self._own, ignore_errors=True)

    def _end_between_epochs(self) -> None:
        """End the streaming query while no job runs: interrupting one would make Spark noisy."""
        query = self._query
        assert query is not None
        try:
            self._beside(query)
        finally:
            ended_by_spark = not self._stopping.is_set()
            self._stopping.set()  # a micro-batch that has lost its query finishes its epoch, and no more
            with self._working:
                pass
            error = query.exception() if ended_by_spark else None
            if error is not None:
                self._failure = self._failure or self._taken_over() or _of_spark(error)
            query.stop()

    def _taken_over(self) -> SpringtideError | None:
        """Return the error of a run that lost its checkpoint: Spark may notice it first, since its records are gone."""
        try:
            self._engine.check()
        except SpringtideError as error:
            return error
        return None

    def _beside(self, query: StreamingQuery) -> None:
        """Do what has to be done between micro-batches; after the last one, take what is left of the other sources."""
        pause = _POLL if self._engine.reads and self._spark_reads else _BESIDE
        while not self._stopping.wait(pause) and query.isActive:
            if self._spark_reads and self._working.acquire(blocking=False):
                try:
                    self._epochs_without_a_batch(query)
                finally:
                    self._working.release()
        if self._spark_reads and self._available_now and query.exception() is None:
            with self._working:
                while not self._between_epochs() and self._epoch_if_due():
                    pass


def _seconds(spark: SparkSession, trigger: str) -> float:
    """Read a trigger as Spark does."""
    jvm: Any = spark.sparkContext._jvm
    return float(jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(trigger).intervalMs()) / 1000


def _readable(error: BaseException) -> SpringtideError:
    """Return the error with which a failed job ends the run."""
    if isinstance(error, SpringtideError):
        return error
    if is_gone(error):
        return _ended(GONE, error)
    return _ended(f"the epoch failed and was not committed: {_said(error)}", error)


def _said(error: BaseException) -> str:
    """Return the line that matters in what Spark says about a failed job."""
    if isinstance(error, SpringtideError):
        return str(error)
    said = (line.strip() for line in str(error).splitlines())
    lines = [line for line in said if line and not line.startswith("at ")]  # Java's stack trace is of no use here
    ours = [line for line in lines if line.startswith("springtide.") and "Error: " in line]
    named = [line for line in lines if "Error" in line.partition(":")[0]]
    return ours[-1].partition(": ")[2] if ours else named[-1] if named else repr(error)


def _of_spark(error: BaseException) -> SpringtideError:
    """Return the error of Spark itself outside an epoch: an offset that it could not write, or one of its own sources."""
    return _ended(f"Spark has ended the query: {str(error).strip().partition(chr(10))[0]}", error)


def _ended(problem: str, error: BaseException) -> SpringtideError:
    failure = SpringtideError(f"{problem}; the next start continues from the last committed epoch")
    failure.__cause__ = error
    return failure
