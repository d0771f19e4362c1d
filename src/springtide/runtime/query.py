"""`Query`: what a user holds in hand, and everything that can be done with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from springtide.compiler.explain import explain
from springtide.compiler.mermaid import mermaid
from springtide.compiler.picture import svg
from springtide.compiler.pipeline import compile
from springtide.compiler.plan import BUCKETS, Plan
from springtide.elastic.policies.policy import Policy
from springtide.elastic.settings import Elastic, elastic_of
from springtide.query.errors import QueryError, shown
from springtide.query.graph import Graph
from springtide.query.habits import QUERY, unknown
from springtide.query.steps import Source
from springtide.query.types import Length, micros_of, whole
from springtide.query.usage import usage
from springtide.runtime import (
    preview,  # noqa: F401 (lets streams be looked at)
    reference,
)
from springtide.runtime.durability import Durability, durability_of
from springtide.runtime.first_contact import usual_checkpoint, usual_session
from springtide.runtime.identity import begin_from
from springtide.runtime.options import Options
from springtide.runtime.replicas.settings import Replicated
from springtide.runtime.standby import Standby, standby_of
from springtide.runtime.tracing import spans_of
from springtide.sources.spark import SparkSource
from springtide.sparks import check_session

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from springtide.runtime.spark.run import Run


class Query(Graph):
    """A query over streams: a name and the sinks at its ends. Nothing runs before it is told to.

    >>> query = st.Query("copy", calls.to(st.memory_sink()))
    >>> list(query.steps)
    ['calls', 'sink']
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse what a query does not have, and say what to write instead."""
            if name.startswith("_") or "name" not in self.__dict__:
                raise AttributeError(name)
            raise unknown(f"{self.name} (query)", name, QUERY, [n for n in dir(type(self)) if not n.startswith("_")])

    @usage("query.plan(buckets=64)", lambda query, _: f"{query.name} (query)")
    def plan(self, *, buckets: int = BUCKETS) -> Plan:
        """Compile the query: its subqueries and what goes between them (SC-3, SC-5).

        >>> long = calls.aggregate(by="src", window=st.tumbling("1h"), n=st.count(), name="hourly")
        >>> [s.name for s in st.Query("hourly", long.to(st.memory_sink())).plan().subqueries]
        ['calls', 'hourly']
        """
        return compile(self, buckets)

    @usage("query.explain(as_mermaid=True)", lambda query, _: f"{query.name} (query)")
    def explain(self, *, buckets: int = BUCKETS, as_mermaid: bool = False) -> str:
        """Return what the query will run as, as text or as a Mermaid flowchart.

        >>> print(st.Query("copy", calls.to(st.memory_sink(), name="copy")).explain())
        query copy
        <BLANKLINE>
        step   kind    input  what it does
        calls  source         memory, 0 rows → src:str dst:str duration:i64 ts:time
        copy   sink    calls  memory
        <BLANKLINE>
        subquery calls  stateless  calls → copy
        """
        plan = self.plan(buckets=buckets)
        return mermaid(plan) if as_mermaid else explain(plan)

    def _repr_svg_(self) -> str | None:
        """Show a notebook the query as a graph; one that cannot be compiled it shows as text."""
        try:
            return svg(self.plan())
        except QueryError:
            return None

    @usage('query.run_reference({"calls": rows})', lambda query, _: f"{query.name} (query)")
    def run_reference(
        self,
        inputs: reference.Inputs | None = None,
        *,
        bounded: bool = True,
        observe: reference.Observer | None = None,
    ) -> reference.Result:
        """Run the query row by row in this process: the rows that every run of it must give (SC-4).

        `inputs` gives rows to sources by name: a frame, a list of dicts, or several of them as physical streams by
        name; other sources are read. With `bounded=False` the input is taken for the beginning of an endless one:
        windows that are still open are not given. `observe` is told the rows and seconds of each step (SC-8).

        >>> from datetime import datetime
        >>> hourly = calls.aggregate(by="src", window=st.tumbling("1h"), n=st.count())
        >>> query = st.Query("hourly", hourly.to(st.memory_sink()))
        >>> rows = [{"src": "A", "ts": datetime(2024, 1, 1, 9, minute)} for minute in (10, 20)]
        >>> query.run_reference({"calls": rows}).rows()["n"].to_list()
        [2]
        >>> query.run_reference({"calls": rows}, bounded=False).rows()["n"].to_list()
        []
        """
        return reference.run(self, inputs, bounded=bounded, observe=observe)

    @usage("query.start(st.spark_session('local[2]'), checkpoint='ckpt/')", lambda query, _: f"{query.name} (query)")
    def start(
        self,
        spark: Any = None,
        *,
        checkpoint: str | Path | None = None,
        instances: int | Mapping[str, int] | None = None,
        buckets: int = BUCKETS,
        rows_per_epoch: int | None = None,
        trigger: str | None = None,
        elastic: bool | Elastic | Policy | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        traces: bool | TracerProvider = False,
        patience: Length = "1m",
        durability: Durability | Length | None = None,
        savepoint: str | Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
        standby: bool | Standby | None = None,
        replicas: Replicated | None = None,
        reload: Callable[[], tuple[Graph, Elastic | None]] | None = None,
        history: bool = False,
    ) -> Run:
        """Run the query on a Spark session, in epochs, until its input ends or it is stopped.

        Without a session it takes the one that this process has, or makes one on this machine; without a checkpoint it keeps its state in a folder
        named after the query, below `springtide-checkpoints`, and the next start continues from there. It says so on stderr. If all rows go to
        memory sinks, every start begins anew, in a temporary folder.

        The run can stand in a `with`: `with query.start() as run:` stops it at the end of the block.

        `instances` is the number of parallel workers of every subquery, or of some by the name of a step; without it a new query has as
        many as Spark has slots and an old one as many as before. `trigger` is the least time between two epochs ("1 second"). A burst of
        input is taken in at most `rows_per_epoch` rows at a time; if nothing is said 4 million of each
        input, and up to 16 million while epochs are shorter than a second. What Spark reads (`st.spark`) is bounded by options of its own (`maxOffsetsPerTrigger`, `maxFilesPerTrigger`).

        With `elastic` the number of instances and the owners of buckets change while the query runs: True for the usual policy, a
        policy, or `st.Elastic(…)` with limits and all.

        What fails because something outside is unavailable, such as the files of a source, a sink, a disk or a worker, is tried again for
        as long as `patience` says (see `run.events()`); then the run ends with an error that names the step, and the next start continues.

        State is durable with every epoch; with `durability="5s"` it is made so every five seconds, in the background, and `st.Durability(…)`
        says more: a backup in an object store, how many checkpoints are kept. Every row comes exactly once in any case.

        With `savepoint`, its folder or address, a new checkpoint begins with the state of that: of this query, or of another form of it, as
        long as its sources and stateful steps are the same. A start that is repeated continues with the checkpoint.

        `checkpoint` is a folder that all executors see, or the address of an object store: "s3://bucket/folder", "gs://…", "az://…", "abfss://…". Its
        credentials come from where the store's own tools have them, or from `storage_options` ({"access_key": …}), which are written down nowhere.

        With `standby` (True, or `st.Standby(…)`) this waits, with Spark started and workers warm, for as long as another run of the query is at work, and returns
        when that one is gone and this run has taken over; if there is none, at once.

        `reload` returns the query as it is written now, and what `elastic` is to be; `springtide reload` has it called, and the run takes that form
        (see `run.replace`). With `history`, steps that are new in it begin with the history of their sources.

        With `replicas` it is one of several that run at the same time, each with a checkpoint of its own: `st.Replicated("s3://bucket/group", name="a")`. The first to
        finish an epoch publishes it.

        With `metrics_port` the run serves its metrics to Prometheus there (0: on any free port, see `run.metrics_url`), to this machine
        alone unless `metrics_host` says otherwise. With `traces` it tells OpenTelemetry where the time of each epoch goes: True for the provider
        that your program has set, or a provider (`pip install 'springtide[traces]'`).
        """
        if checkpoint is not None and not isinstance(checkpoint, str | PathLike):
            hint = 'give a folder or the address of one in an object store: checkpoint="ckpt/"'
            raise QueryError(f"{self.name} (query)", f"checkpoint={shown(checkpoint)} is not a place", hint)
        instances, rows = self._wanted(instances), self._admitted(rows_per_epoch)
        spark = usual_session() if spark is None else spark
        check_session(f"{self.name} (query)", spark)
        if checkpoint is None and replicas is not None:
            raise QueryError(
                f"{self.name} (query)", "a replica needs a checkpoint of its own", 'say where: checkpoint="calls-a"'
            )
        if checkpoint is None:
            checkpoint, then = usual_checkpoint(self)
            where = f"{self.name} runs on {spark.sparkContext.master}; its checkpoint is {checkpoint}: {then}"
            print(where, file=sys.stderr)
        from springtide.runtime.spark.run import Run

        durable = durability_of(durability)
        place = durable.checkpoint(
            checkpoint, storage_options
        )  # what is no place for it is refused before anything else
        usual = int(spark.sparkContext.defaultParallelism)
        patient = micros_of(f"{self.name} (query)", patience, "patience") / 1e6
        options = Options(
            instances,
            rows,
            usual,
            elastic_of(elastic),
            durable,
            patient,
            reload=reload,
            history=history,
            replica=replicas.opened(storage_options) if replicas is not None else None,
            spans=spans_of(self.name, traces),
        )
        plan = self.plan(buckets=buckets)
        if savepoint is not None:
            begin_from(savepoint, plan, place, durable.store)

        def begin(plan: Plan, options: Options, resign: Callable[[], None] | None = None) -> Run:
            exporter = None
            if metrics_port is not None:
                from springtide.runtime.exporting import Exporter

                exporter = Exporter(self.name, metrics_port, metrics_host)
            try:
                return Run(plan, spark, place, options, trigger, exporter, resign)
            except BaseException:
                if exporter is not None:
                    exporter.close()
                raise

        if (standing := standby_of(standby)) is None:
            return begin(plan, options)
        from springtide.runtime.spark.standby import stand_by

        return stand_by(spark, plan, place, standing, options, begin)

    def _wanted(self, instances: int | Mapping[str, int] | None) -> int | Mapping[str, int] | None:
        """Return how many instances are wanted; refuse what is not a number."""
        where = f"{self.name} (query)"
        if isinstance(instances, Mapping):
            return {step: whole(where, f"instances[{step!r}]", number) for step, number in instances.items()}
        return None if instances is None else whole(where, "instances", instances)

    def _admitted(self, rows_per_epoch: int | None) -> int | None:
        """Return the rows that an epoch takes at most, if that was said; refuse to bound what Spark alone reads."""
        if rows_per_epoch is None:
            return None
        if whole(f"{self.name} (query)", "rows_per_epoch", rows_per_epoch) < 1:
            problem = f"rows_per_epoch={rows_per_epoch} reads nothing"
            raise QueryError(f"{self.name} (query)", problem, "give a number above zero")
        sources = self.of_kind(Source)
        if all(isinstance(s.connector, SparkSource) for s in sources.values()):
            raise QueryError(
                f"{next(iter(sources))} (source)",
                f"rows_per_epoch={rows_per_epoch} does not bound what Spark reads: an epoch takes one micro-batch",
                'bound that where the frame is made: .option("maxOffsetsPerTrigger", …) for Kafka, "maxFilesPerTrigger" for files',
            )
        return rows_per_epoch
