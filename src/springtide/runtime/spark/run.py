"""A query running on Spark, and the handle to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import SparkSession

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
from springtide.runtime.engine import Engine
from springtide.runtime.options import Options
from springtide.runtime.spark.faults import failure_of_epoch, line_that_matters
from springtide.runtime.spark.job import SparkExecutor
from springtide.runtime.spark.loop import CurrentForm, EpochLoop, pace_of
from springtide.runtime.spark.probe import check_executors
from springtide.runtime.spark.replacing import Replacing
from springtide.runtime.spark.results import Results
from springtide.runtime.spark.rows import spark_sources
from springtide.runtime.spark.warmth import Warmth
from springtide.runtime.status import status_of
from springtide.state.checkpoint import Checkpoint
from springtide.state.manifest import Manifest
from springtide.state.savepoints import save
from springtide.state.stores import Store

if TYPE_CHECKING:
    from springtide.runtime.exporting import Exporter

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
        pace = pace_of(spark, plan.graph.name, trigger)
        self._name, self._exporter, self._resign = plan.graph.name, exporter, resign
        self._history: list[Manifest] = []
        executor = SparkExecutor(spark.sparkContext, plan)
        form = CurrentForm(executor, Results(plan))
        executors = options.elastic.executors if options.elastic else None
        resources = resources_of(spark.sparkContext, executors, lambda tasks: form.executor.warm_up(tasks))
        executor.slots = resources.slots
        if isinstance(resources, SparkExecutors):
            executor.ready = resources.ready
        self._engine = Engine(plan, checkpoint, executor, options, resources)
        executor.note = self._engine.note
        self._engine.find_errors_with(line_that_matters)
        self._loop = EpochLoop(spark, self._engine, form, spark_sources(plan), self._remember)
        self._replacing = Replacing(spark, self._engine, self._loop)
        if options.reload is not None:
            self._engine.reload = partial(self._replacing.reload, options)
        try:
            check_executors(spark.sparkContext, self._engine.tiers, durable)
        except BaseException:
            self._engine.close()
            raise
        self._warmth = Warmth(lambda: form.executor.workers(), lambda workers: form.executor.call_workers(workers))
        try:
            self._loop.start(trigger, pace)
        except BaseException:
            self._warmth.close()
            self._engine.close()
            self._loop.forget_own()
            raise
        threading.Thread(target=self._watch, name=self._loop.group, daemon=True).start()

    # ── for people ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        """The name of the query."""
        return self._name

    @property
    def query(self) -> Graph:
        """The query, in the form that it has now."""
        return self._engine.plan.graph

    @property
    def active(self) -> bool:
        """Whether the query is still running."""
        return not self._loop.finished.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, and raise the error that stopped the query, if there was one. Return False if the time runs out first."""
        if not self._loop.finished.wait(timeout):
            return False
        if self._loop.failure is not None:
            raise self._loop.failure
        return True

    def stop(self, *, at_once: bool = False) -> None:
        """Finish the current epoch, and end; a later start continues from here.

        `at_once` abandons the epoch instead: it is not committed and will be done again. A query with rows that Spark
        reads finishes its epoch in any case, so that Spark's offsets and ours agree.
        """
        self._loop.stop(at_once=at_once and not self._loop.sources)
        self.wait()

    def results(self, sink: str | None = None) -> Iterator[pl.DataFrame]:
        """Return the rows of a memory sink as they are published, epoch after epoch: each once, including those from before this call.

        The iterator ends with the run, and raises the error that stopped it, if there was one. Rows of earlier runs are not included.
        """
        return self._loop.form.results.of(sink, self._loop.finished, self.wait)

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
        self._loop.ask(lambda: self._engine.scale(step, instances, protocol))

    def move(self, step: str, buckets: Sequence[int], to: int, *, protocol: ProtocolChoice | None = None) -> None:
        """Give some buckets of a step to one of its instances, from the next epoch on."""
        self._loop.ask(lambda: self._engine.move(step, buckets, to, protocol))

    def rebalance(self, step: str, *, protocol: ProtocolChoice | None = None) -> None:
        """Even out the load of a step's instances, from the next epoch on."""
        self._loop.ask(lambda: self._engine.rebalance(step, protocol))

    def pause_elasticity(self) -> None:
        """Allow only manual changes until `resume_elasticity`."""
        self._loop.ask(self._engine.pause_elasticity)

    def resume_elasticity(self) -> None:
        """Let the policy decide again."""
        self._loop.ask(self._engine.resume_elasticity)

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
            self._replacing.replace(
                lambda: (query, self._engine.form.elastic if elastic is None else elastic_of(elastic)), history
            )
        elif elastic is not None:
            settings = elastic_of(elastic)
            self._loop.ask(lambda: self._engine.change_elasticity(settings))

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
        return self._loop.ask(self._engine.checkpoint_now)

    def savepoint(self, name: str) -> Path | str:
        """Keep the state between two epochs under a name; return its folder or address, from which a query can be started."""

        def keep() -> Path | str:
            self._engine.checkpoint_now()
            return save(self.checkpoint_store, name)

        return self._loop.ask(keep)

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
        self._loop.ask(lambda: self._engine.attach(source, label, connector))

    def detach(self, source: str, label: str) -> None:
        """Stop reading an attached input, so that it no longer holds the others back (ST-3)."""
        self._loop.ask(lambda: self._engine.detach(source, label))

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

    def _remember(self, manifest: Manifest) -> None:
        self._history.append(manifest)
        del self._history[:-_REMEMBERED]
        if self._exporter is not None and self._engine.snapshot is not None:
            self._exporter.observe(manifest, self._engine.snapshot)

    def _watch(self) -> None:
        """Wait for the end of the streaming query, and release everything, whatever happens to Spark: a caller may be waiting for this."""
        loop = self._loop
        try:
            loop.end_between_epochs()
        except Exception as error:
            loop.failure = loop.failure or failure_of_epoch(error)
        try:
            loop.stop()
            self._warmth.close()
            with loop.working:  # the rest of an epoch may still be running, without Spark
                self._engine.close()
            loop.forget_own()
            if self._exporter is not None:
                self._exporter.close()
        except Exception as error:
            loop.failure = loop.failure or failure_of_epoch(error)
        try:
            if self._resign is not None:
                self._resign()
        except Exception as error:
            loop.failure = loop.failure or failure_of_epoch(error)
        finally:
            loop.finished.set()
