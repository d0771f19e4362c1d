"""Takes rows that Spark reads itself into an epoch: one struct column per source, judged and routed in Python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from springtide.compiler.plan import Plan
from springtide.connectors import POSITION, Read, Slice
from springtide.exchange import gate
from springtide.query import steps
from springtide.query.connectors import ONE_STREAM
from springtide.query.errors import QueryError
from springtide.query.ids import InstanceId
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.spark.job import Pair, addressed, live
from springtide.runtime.tasks import Arrival, Item, run_prefix
from springtide.sources.spark import SparkSource, label_of, tuples, two_topics

_SCHEMA = "next int, level int, partition int, payload binary"


def spark_sources(plan: Plan) -> dict[str, SparkSource]:
    """Return the sources that Spark reads."""
    sources = plan.graph.of_kind(steps.Source)
    return {name: s.connector for name, s in sources.items() if isinstance(s.connector, SparkSource)}


def check_same(before: Mapping[str, SparkSource], plan: Plan) -> None:
    """Refuse a form of a query in which Spark reads other sources: one streaming query reads them, from the start of the run to its end."""
    after = spark_sources(plan)
    hint = "stop the run, and start it in the new form from a savepoint"
    for name in after.keys() ^ before.keys():
        what = (
            "is not read by Spark any more" if name in before else "is one that Spark reads, and was not there before"
        )
        raise QueryError(f"{name} (source)", f"it {what}", hint)
    if list(after) != list(before):
        raise QueryError(f"{next(iter(after))} (source)", "sources that Spark reads are in another order", hint)
    for name, source in after.items():
        old, new = before[name].frame, source.frame
        assert old is not None
        assert new is not None
        if old is not new and not old.sameSemantics(new):
            raise QueryError(f"{name} (source)", "Spark is to read it in another way than before", hint)


def combined(sources: Mapping[str, SparkSource]) -> DataFrame:
    """Put all streaming DataFrames into one: a struct column each, null if the row belongs to another."""
    frames = []
    for own, source in sources.items():
        assert source.frame is not None
        columns = [
            sf.struct(*source.frame.columns).alias(f"s{i}")
            if name == own
            else sf.lit(None).cast(_type(other)).alias(f"s{i}")
            for i, (name, other) in enumerate(sources.items())
        ]
        frames.append(source.frame.select(columns))
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionByName(frame)
    return result


def _type(source: SparkSource) -> str:
    assert source.frame is not None
    return source.frame.schema.simpleString()


def row_task(plan: Plan, epoch: Epoch, task: int, batches: Iterable[pa.RecordBatch]) -> Iterator[Item]:
    """Take some rows of a micro-batch through the prefixes of their sources.

    It stands beside the instances of a prefix, and is numbered after them. Spark reads and parses while this waits for the next
    batch: that is work too, and is shared out to the prefixes by their rows.
    """
    entered, sources = time.perf_counter(), spark_sources(plan)
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in sources}
    for batch in batches:
        for i, (name, source) in enumerate(sources.items()):
            column = batch.column(i)
            if column.null_count < len(column):
                parts[name].append(tuples(source, column.drop_null() if column.null_count else column))
    rows = {name: pl.concat(frames) for name, frames in parts.items() if frames}
    reading, total = time.perf_counter() - entered, sum(frame.height for frame in rows.values())
    for name in epoch.topology.levels[0]:
        mine = [s for s in plan.subquery(name).sources if s in sources]
        if mine:
            share = sum(rows[s].height for s in mine if s in rows) / total if total else 1.0
            arrivals = [a for s in mine if s in rows for a in _arrivals(plan, epoch, s, rows[s])]
            yield from run_prefix(
                plan, epoch, name, InstanceId(epoch.topology.instances[name] + task), arrivals, share * reading
            )


def _arrivals(plan: Plan, epoch: Epoch, name: str, rows: pl.DataFrame) -> Iterator[Arrival]:
    """Sort rows into physical streams. One that is first seen now begins at the merged time of its source."""
    step = plan.step(name)
    assert isinstance(step, steps.Source)
    source = step.connector
    assert isinstance(source, SparkSource)
    known = epoch.times.get(name, {})
    if source.position is not None:
        # Rows at one position (of an exploded message) are judged by their time alone: in whatever order they came, it is the same.
        by = [source.position, *([step.ts] if step.ts is not None else [])]
        rows = rows.sort(by).with_columns(pl.col(source.position).cast(pl.Int64).alias(POSITION))
    groups = rows.partition_by(source.stream, as_dict=True) if source.stream else {(ONE_STREAM,): rows}
    for values, group in groups.items():
        stream, topic = label_of(values), None
        if source.topic is not None:
            topics = group[source.topic].unique().to_list()
            if len(topics) > 1:
                raise two_topics(name, stream, map(str, topics))
            topic = str(topics[0])
        time = known.get(stream, gate.start(known))
        yield Arrival(Slice(stream, 0, group.height, None, source=name, time=time), Read(group.lazy()), topic)


@dataclass(frozen=True)
class RowStage:
    """The tasks that take Spark's rows, as Spark ships them."""

    plan: bytes
    epoch: Epoch

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        plan, context = live(self.plan, self.epoch), TaskContext.get()
        items = row_task(plan, self.epoch, context.partitionId() if context else 0, batches)
        for pair in addressed(self.epoch.topology, 1, items):
            yield _row(pair)


def _row(pair: Pair) -> pa.RecordBatch:
    target, (level, partition, payload) = pair
    columns = [pa.array([target], pa.int32()), pa.array([level], pa.int32()), pa.array([partition], pa.int32())]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array([payload], pa.binary())], names=["next", "level", "partition", "payload"]
    )


def split(plan: Plan, epoch: Epoch, reports: Iterable[TaskReport]) -> list[str]:
    """Return the sources with positions that had rows of one physical stream in several tasks: what is late was judged by halves."""
    ordered = {name for name, source in spark_sources(plan).items() if source.positions}
    seen: dict[str, list[str]] = {}
    for report in reports:
        if report.instance >= epoch.topology.instances[report.subquery]:
            for name in ordered.intersection(report.times):
                seen.setdefault(name, []).extend(report.times[name])
    return sorted(name for name, streams in seen.items() if len(set(streams)) < len(streams))


@dataclass(frozen=True)
class MicroBatch:
    """The rows of a micro-batch, on their way into an epoch."""

    rows: DataFrame
    sources: Mapping[str, SparkSource]

    def tasks(self, plan: bytes, epoch: Epoch, whole: bool) -> RDD[Pair]:
        """Make the tasks of level 0 that take the rows; with `whole` all rows of a physical stream go to one of them."""
        rows = self.rows
        if whole:
            rows = rows.repartition(rows.sparkSession.sparkContext.defaultParallelism, *_keys(self.sources))
        routed = rows.mapInArrow(RowStage(plan, epoch), _SCHEMA)
        return routed.rdd.map(lambda r: (r[0], (r[1], r[2], bytes(r[3]))))

    def split(self, plan: Plan, epoch: Epoch, reports: Sequence[TaskReport]) -> list[str]:
        """Return the sources with rows of one physical stream in several tasks, where that changes what is late."""
        return split(plan, epoch, reports)


def _keys(sources: Mapping[str, SparkSource]) -> list[Column]:
    """Return what rows are distributed by: their physical stream or, without positions, everything that can be hashed."""
    keys = []
    for i, source in enumerate(sources.values()):
        assert source.frame is not None
        hashable = [f.name for f in source.frame.schema.fields if "map<" not in f.dataType.simpleString()]
        columns = source.stream if source.positions else hashable
        keys += [sf.col(f"s{i}").isNotNull(), *(sf.col(f"s{i}").getField(name) for name in columns)]
    return keys
