"""Rows that Spark reads itself, on their way into an epoch: one struct column per source, judged and routed in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from springtide.compiler.plan import Plan
from springtide.kernels import gate
from springtide.kernels.slices import POSITION, Read, Slice
from springtide.query import steps
from springtide.query.connectors import ONE_STREAM
from springtide.runtime.epoch import Epoch
from springtide.runtime.shadows import with_shadows
from springtide.runtime.spark.job import Pair, addressed, unpack
from springtide.runtime.tasks import Arrival, run_prefix
from springtide.runtime.topology import topology
from springtide.sources.spark import SparkSource, tuples

_SCHEMA = "next int, level int, partition int, payload binary"


def spark_sources(plan: Plan) -> dict[str, SparkSource]:
    """Name the sources that Spark reads."""
    sources = plan.graph.of_kind(steps.Source)
    return {name: s.connector for name, s in sources.items() if isinstance(s.connector, SparkSource)}


def combined(sources: Mapping[str, SparkSource]) -> DataFrame:
    """Put all streaming DataFrames into one: a struct column each, null where the row is another's."""
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


@dataclass(frozen=True)
class RowStage:
    """The tasks that take Spark's rows, as Spark ships them."""

    plan: bytes
    epoch: Epoch

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        plan = unpack(self.plan)
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        sources = spark_sources(plan)
        parts: dict[str, list[pl.DataFrame]] = {name: [] for name in sources}
        for batch in batches:
            for i, (name, source) in enumerate(sources.items()):
                column = batch.column(i)
                if column.null_count < len(column):
                    parts[name].append(tuples(source, column.drop_null() if column.null_count else column))
        layout = topology(with_shadows(plan, self.epoch.shadows), self.epoch.instances)
        for name in layout.levels[0]:
            mine = [s for s in plan.subquery(name).sources if s in sources]
            if mine:
                arrivals = [a for s in mine if parts[s] for a in self._arrivals(s, sources[s], pl.concat(parts[s]))]
                items = run_prefix(plan, self.epoch, name, task, arrivals)
                for pair in addressed(layout, 1, items):
                    yield _row(pair)

    def _arrivals(self, name: str, source: SparkSource, rows: pl.DataFrame) -> Iterator[Arrival]:
        if source.position is not None:
            rows = rows.sort(source.position).with_columns(pl.col(source.position).cast(pl.Int64).alias(POSITION))
        groups = rows.partition_by(source.stream, as_dict=True) if source.stream else {(ONE_STREAM,): rows}
        for (stream,), group in groups.items():
            label = str(stream)
            time = self.epoch.times.get(name, {}).get(label, gate.BEGINNING)
            yield Arrival(Slice(label, 0, group.height, None, source=name, time=time), Read(group.lazy()))


def _row(pair: Pair) -> pa.RecordBatch:
    target, (level, partition, payload) = pair
    columns = [pa.array([target], pa.int32()), pa.array([level], pa.int32()), pa.array([partition], pa.int32())]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array([payload], pa.binary())], names=["next", "level", "partition", "payload"]
    )


def row_tasks(rows: DataFrame, plan: bytes, epoch: Epoch) -> RDD[Pair]:
    """Make the tasks of level 0 that take the rows of a micro-batch."""
    routed = rows.mapInArrow(RowStage(plan, epoch), _SCHEMA)
    return routed.rdd.map(lambda r: (r[0], (r[1], r[2], bytes(r[3]))))
