"""Another form of a query that runs on Spark: all that takes long is done while epochs continue, and the exchange is between two epochs (SM-3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import SparkSession

from springtide.compiler.pipeline import compile
from springtide.compiler.plan import Plan
from springtide.elastic.settings import Elastic
from springtide.query.errors import SpringtideError
from springtide.query.graph import Graph
from springtide.runtime.backfilling import Backfill, history_of, plan_of
from springtide.runtime.engine import Engine
from springtide.runtime.identity import identity
from springtide.runtime.options import Options
from springtide.runtime.spark.job import SparkExecutor
from springtide.runtime.spark.loop import POLL, EpochLoop
from springtide.runtime.spark.rows import check_same
from springtide.state.manifest import Manifest

_WARM = 10.0
"""Seconds that workers may take to unpack another form of the query; after that it begins all the same."""


class Replacing:
    """Replaces the form of a running query, once or many times."""

    def __init__(self, spark: SparkSession, engine: Engine, loop: EpochLoop) -> None:
        """Replace nothing yet."""
        self._spark, self._engine, self._loop = spark, engine, loop
        self._lock = threading.Lock()

    def replace(self, read: Callable[[], tuple[Graph, Elastic | None]], history: bool | Sequence[str]) -> Manifest:
        """Replace the query by the one that is read, one such change after the other; return the manifest of its first epoch."""
        with self._lock:
            query, elastic = read()
            plan, executor = self._prepare(query)
            names = history_of(self._engine.plan, plan, history)
            backfill = self._filled(names, plan) if names else None
            return self._loop.ask(lambda: self._exchange(plan, executor, elastic, backfill))

    def reload(self, options: Options) -> Future[Manifest]:
        """Begin to read the query again, and to replace it, in a thread: epochs continue until all is prepared."""
        done: Future[Manifest] = Future()

        def act() -> None:
            try:
                done.set_result(self.replace(options.read_again, options.history))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=act, name=f"{self._loop.group}-reload", daemon=True).start()
        return done

    def _prepare(self, query: Graph) -> tuple[Plan, SparkExecutor]:
        """Do everything for a change that can be done while epochs continue: compile the query, and send it to the workers."""
        plan = compile(query, self._engine.plan.buckets)
        check_same(self._loop.sources, plan)
        identity(plan)  # it is computed here, and known from now on
        executor = self._loop.form.executor.replaced(plan)
        done = executor.warm_up(self._loop.form.executor.slots() or self._spark.sparkContext.defaultParallelism)
        until = time.monotonic() + _WARM
        while not done() and time.monotonic() < until:
            time.sleep(POLL)
        return plan, executor

    def _filled(self, names: Sequence[str], plan: Plan) -> Backfill:
        """Build the history of new steps, but for a rest that can wait for the swap; an epoch of the old form comes between two slices."""
        part = plan_of(plan, names)
        backfill = self._loop.ask(
            lambda: self._engine.backfill(names, plan, part, self._loop.form.executor.replaced(part))
        )
        try:
            while not self._loop.ask(lambda: self._engine.advance(backfill, plan)):
                pass
        except BaseException:
            with suppress(SpringtideError):
                self._loop.ask(lambda: backfill.close(adopted=False))
            raise
        return backfill

    def _exchange(
        self, plan: Plan, executor: SparkExecutor, elastic: Elastic | None, backfill: Backfill | None = None
    ) -> Manifest:
        """Replace the query, in an epoch."""
        form = self._loop.form
        before = replace(form)
        form.executor, form.results = executor, before.results.replaced(plan)
        try:
            manifest = self._engine.replace(plan, executor, elastic, backfill)
        except BaseException:
            form.executor, form.results = before.executor, before.results
            raise
        self._loop.remember(manifest)
        return manifest
