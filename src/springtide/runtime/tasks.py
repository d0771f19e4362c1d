"""What a task does in one epoch. The same on Spark and in-process: items in, items out.

An item is (level, partition, payload): a blob for an instance of a later level, or a report for the driver. Each level passes on
what is not for it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from springtide.compiler.plan import Plan, Subquery
from springtide.kernels import gate, order
from springtide.kernels.balancer import balance
from springtide.kernels.blob import Blob, Times
from springtide.kernels.chain import Output, run_chain
from springtide.kernels.hashing import BUCKET
from springtide.kernels.ingest import ingest
from springtide.kernels.slices import NativeSource, Read, Slice
from springtide.query import steps
from springtide.runtime.epoch import Epoch, Report
from springtide.runtime.heads import run_head
from springtide.runtime.topology import Topology, origin_ranks, sources_behind, topology
from springtide.state.manifest import Delivery

REPORT = -1
"""The level of items for the driver."""

Item = tuple[int, int, bytes]


@dataclass
class Work:
    """One task at work: collects what its report will say."""

    plan: Plan
    epoch: Epoch
    subquery: Subquery
    instance: int
    layout: Topology
    started: float = field(default_factory=time.perf_counter)
    rows_in: int = 0
    rows_out: int = 0
    outbox: list[Delivery] = field(default_factory=list)

    @property
    def ordered(self) -> bool:
        """Tuples of this subquery carry their place in the total order."""
        return any(e.ordered for e in self.plan.exchanges if e.origin == self.subquery.name)

    def emit(self, made: dict[Output, pl.LazyFrame], times: Times) -> Iterator[Item]:
        """Run the chain on what was made; send blobs to the next instances and rows to the outbox."""
        outputs = run_chain(self.plan, self.subquery, made, ordered=self.ordered)
        exchanges = [
            (i, e)
            for i, e in enumerate(self.plan.exchanges)
            if e.origin == self.subquery.name and (e.step, e.port) in outputs
        ]
        prepared = [balance(self.plan, e, outputs[e.step, e.port]) for _, e in exchanges]
        sinks = [(name, self._input_of(name)) for name in self.subquery.sinks]
        sinks = [(name, key) for name, key in sinks if key in outputs]
        rows = [outputs[key].select(list(self.plan.step(name).schema)) for name, key in sinks]
        frames = (
            pl.collect_all([*prepared, *rows])
            if len(prepared) + len(rows) > 1
            else [f.collect() for f in (*prepared, *rows)]
        )
        for (name, _), frame in zip(sinks, frames[len(prepared) :], strict=True):
            self.deliver(name, frame)
        for (number, exchange), frame in zip(exchanges, frames[: len(prepared)], strict=True):
            target = self.epoch.maps[exchange.target]
            level = self.layout.level_of(exchange.target)
            self.rows_out += frame.height
            for instance, part in _by_owner(frame, target.owners, target.instances):
                yield level, self.layout.partition_of(exchange.target, instance), Blob(number, times, part).encode()

    def deliver(self, sink: str, rows: pl.DataFrame) -> None:
        """Put rows for a sink into the outbox."""
        if not rows.height:
            return
        connector = self.plan.step(sink)
        assert isinstance(connector, steps.Sink)
        as_parquet = getattr(connector.connector, "outbox", "arrow") == "parquet"
        file = f"outbox/{self.epoch.number:09d}/{sink}-{self.subquery.name}-{self.instance}-{uuid.uuid4().hex[:8]}.{'parquet' if as_parquet else 'arrow'}"
        path = Path(self.epoch.root) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if as_parquet:
            rows.write_parquet(path, compression="zstd", compression_level=1, statistics=True)
        else:
            rows.write_ipc(path, compression="uncompressed")
        self.rows_out += rows.height
        self.outbox.append(Delivery(sink, file, rows.height, self.instance))

    def report(self, **more: object) -> Item:
        """Say what was done."""
        report = Report(
            self.subquery.name,
            self.instance,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            busy=time.perf_counter() - self.started,
            outbox=tuple(self.outbox),
            **more,  # type: ignore[arg-type]
        )
        return REPORT, 0, json.dumps(report.to_json()).encode()

    def _input_of(self, name: str) -> Output:
        (stream,) = self.plan.step(name).inputs
        return self.plan.graph.name_of(stream.step), stream.port


@dataclass(frozen=True)
class Arrival:
    """A slice and its rows."""

    part: Slice
    read: Read


def source_task(plan: Plan, epoch: Epoch, partition: int) -> Iterator[Item]:
    """Read the slices of one instance of a prefix."""
    name, instance = topology(plan, epoch.instances).instance_of(0, partition)
    yield from run_prefix(plan, epoch, name, instance, _read(plan, epoch.slices[name][instance]))


def _read(plan: Plan, slices: Iterable[Slice]) -> Iterator[Arrival]:
    for part in slices:
        source = plan.step(part.source)
        assert isinstance(source, steps.Source)
        reader = part.reader or source.connector
        assert isinstance(reader, NativeSource)
        yield Arrival(part, reader.read(part))


def run_prefix(plan: Plan, epoch: Epoch, name: str, instance: int, arrivals: Iterable[Arrival]) -> Iterator[Item]:
    """Judge what arrived, run the stateless prefix, send blobs."""
    work = Work(plan, epoch, plan.subquery(name), instance, topology(plan, epoch.instances))
    ranks = origin_ranks(plan)
    counts: dict[str, dict[str, int]] = {}
    times: dict[str, dict[str, int]] = {}
    made: dict[Output, list[pl.LazyFrame]] = {}
    for arrival in arrivals:
        part, source = arrival.part, plan.step(arrival.part.source)
        assert isinstance(source, steps.Source)
        now = max(part.time, times.get(part.source, {}).get(part.stream, gate.BEGINNING))
        origin = ranks[part.source]
        got = ingest(source, part.source, part, arrival.read, now, ordered=work.ordered, origin=origin)
        if got.time is not None:
            times.setdefault(part.source, {})[part.stream] = got.time
        made.setdefault((part.source, steps.OUT), []).append(got.accepted)
        count = counts.setdefault(part.source, {"accepted": 0, "late": 0, "rejected": 0})
        count["accepted"] += got.count
        for port, frame in ((steps.LATE, got.late), (steps.REJECTED, got.rejected)):
            if frame is not None:
                made.setdefault((part.source, port), []).append(frame.lazy())
                count[port] += frame.height
        work.rows_in += part.rows
    for source_name in work.subquery.sources:  # an instance without rows still sends its headers
        if (source_name, steps.OUT) not in made:
            made[source_name, steps.OUT] = [_nothing(plan, source_name, work.ordered)]
    frames = {key: pl.concat(parts) if len(parts) > 1 else parts[0] for key, parts in made.items()}
    yield from work.emit(frames, times)
    yield work.report(times=times, sources=counts)


def instance_task(plan: Plan, epoch: Epoch, level: int, partition: int, items: Iterable[Item]) -> Iterator[Item]:
    """Take blobs through the gate into the stateful head, run the steps behind it, send blobs."""
    layout = topology(plan, epoch.instances)
    blobs: list[Blob] = []
    for item in items:
        if item[0] == level:
            blobs.append(Blob.decode(item[2]))
        else:
            yield item
    name, instance = layout.instance_of(level, partition)
    work = Work(plan, epoch, plan.subquery(name), instance, layout)
    times = gate.later(epoch.times, [b.times for b in blobs])
    merged = gate.merged_time(times, sources_behind(plan, work.subquery))
    work.rows_in = sum(b.tuples.height for b in blobs if b.tuples is not None)
    result = run_head(work.plan, epoch, work.subquery, instance, blobs, merged)
    head = work.subquery.head
    assert head is not None
    rows = result.rows.lazy()
    if work.ordered:
        rows = rows.with_columns(order.of_step(origin_ranks(plan)[head]))
    yield from work.emit({(head, steps.OUT): rows}, times)
    yield work.report(closed=result.closed, segments=result.segments)


def _by_owner(
    frame: pl.DataFrame, owners: tuple[int, ...], instances: int
) -> Iterator[tuple[int, pl.DataFrame | None]]:
    """Split rows by the instance that owns their bucket; every instance gets something, if only a header."""
    if instances == 1 or not frame.height:
        yield 0, frame if frame.height else None
        yield from ((i, None) for i in range(1, instances))
        return
    owner = pl.Series("__owner", owners, dtype=pl.Int32).gather(frame[BUCKET])
    parts = frame.with_columns(owner).partition_by("__owner", as_dict=True, include_key=False)
    for instance in range(instances):
        yield instance, parts.get((instance,))


def _nothing(plan: Plan, source: str, ordered: bool) -> pl.LazyFrame:
    frame = pl.LazyFrame(schema=plan.step(source).schema)
    return frame.with_columns(order.of_source(0, "", 0)) if ordered else frame
