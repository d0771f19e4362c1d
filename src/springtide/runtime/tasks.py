"""What a task does in one epoch. The same on Spark and in-process: items in, items out.

An item is (level, partition, payload): a blob for an instance of a later level, or a report for the driver. Each level passes on
what is not for it. The plan of a task is the one with the old owners of its epoch.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from springtide.compiler.plan import Exchange, Plan, Subquery
from springtide.connectors import Read, Sink, Slice, Source
from springtide.exchange import gate, order
from springtide.exchange.blob import Blob, Times
from springtide.exchange.hashing import BUCKET, digest_of_rows
from springtide.exchange.routing import BUCKETS, Numbering, split_by_instance
from springtide.operators import Clock, operator_of
from springtide.operators.state_view import StateView
from springtide.query import steps
from springtide.query.errors import UnavailableError, UserCodeError
from springtide.query.ids import InstanceId, Micros
from springtide.query.plurals import plural
from springtide.runtime.buffers import buffer, sent_before
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.patience import of_the_outside, said
from springtide.runtime.samples import OF_EPOCH, Sample, of_late, of_rejected
from springtide.runtime.shipping import Shipped
from springtide.runtime.topology import origin_ranks, sources_upstream, sources_upstream_of_side
from springtide.state.accounts import EXCHANGE, SINK, STEP
from springtide.state.errors import LostError
from springtide.state.manifest import Delivery
from springtide.state.names import delivery
from springtide.state.traffic import NONE, taken
from springtide.stateless.chain import Output, run_chain
from springtide.stateless.ingest import Ingested, ingest

REPORT = -1
"""The level of items for the driver."""

Item = tuple[int, int, bytes]


@dataclass
class Work:
    """One task at work: collects what its report will say."""

    plan: Plan
    epoch: Epoch
    subquery: Subquery
    instance: InstanceId
    entered: float = field(default_factory=time.perf_counter)
    """When the task began to wait for its input."""
    started: float = field(default_factory=time.perf_counter)
    processor: float = field(default_factory=time.process_time)
    """The processor time of its process when it began to work."""
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    outbox: list[Delivery] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    accounts: dict[str, dict[str, int]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    @property
    def ordered(self) -> bool:
        """Tuples of this subquery carry their place in the total order."""
        return any(e.ordered for e in self.plan.exchanges if e.origin == self.subquery.name)

    @property
    def start(self) -> int:
        """Where this task begins to distribute tuples in turn: its neighbours begin elsewhere."""
        return abs(self.epoch.number) * 31 + self.instance

    def emit(
        self, made: dict[Output, pl.LazyFrame], times: Times, greatest: Mapping[str, Micros], numbering: Numbering
    ) -> Iterator[Item]:
        """Run the chain on what was made; send blobs to the next instances and rows to the outbox."""
        outputs = run_chain(self.plan, self.subquery, made, ordered=self.ordered)
        exchanges = [
            (i, e)
            for i, e in enumerate(self.plan.exchanges)
            if e.origin == self.subquery.name and (e.step, e.port) in outputs
        ]
        prepared = [self._sent(e, outputs[e.step, e.port], numbering) for _, e in exchanges]
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
        for (number, _), frame in zip(exchanges, frames[: len(prepared)], strict=True):
            yield from self._send(Blob(number, times, greatest, frame))

    def emit_nothing(self, times: Times, greatest: Mapping[str, Micros]) -> Iterator[Item]:
        """Send only the headers: no rows came, so none are produced."""
        for number, exchange in enumerate(self.plan.exchanges):
            if exchange.origin == self.subquery.name:
                yield from self._send(Blob(number, times, greatest))

    def _send(self, blob: Blob) -> Iterator[Item]:
        """Send a blob, and keep it if its input cannot be read again."""
        if self.subquery.name in self.epoch.buffered:
            self.buffers.append(buffer(self.epoch, self.subquery.name, self.instance, blob))
        yield from self.send(blob)

    def count(self, kind: str, name: str, what: str, rows: int) -> None:
        """Account for rows."""
        own = self.accounts.setdefault(f"{kind} {name}", {})
        own[what] = own.get(what, 0) + rows

    def send(self, blob: Blob) -> Iterator[Item]:
        """Distribute the tuples for an exchange to the instances after it; each gets the header."""
        exchange = self.plan.exchanges[blob.exchange]
        frame = pl.DataFrame() if blob.tuples is None else blob.tuples
        target = self.epoch.maps[exchange.target]
        topology = self.epoch.topology
        level = topology.level_of(exchange.target)
        self.rows_out += frame.height
        sent: tuple[pl.DataFrame | None, bytes] | None = None
        for instance, part in split_by_instance(
            frame, exchange.routing, exchange.side, target.owners, target.instances
        ):
            if sent is None or part is not sent[0]:  # what all instances get is written once
                sent = part, replace(blob, tuples=part).encode()
            if part is not None:
                self.count(EXCHANGE, said_of(exchange), "sent", part.height)
            yield level, topology.partition_of(exchange.target, InstanceId(instance)), sent[1]

    def _sent(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Make the rows for an exchange; to one of two owners only those of its windows."""
        operator = operator_of(self.plan, exchange.target)
        rows = operator.send(exchange, tuples, numbering)
        windows = self.epoch.windows.get(exchange.target)
        return rows if windows is None else rows.filter(operator.within(windows))

    def deliver(self, sink: str, rows: pl.DataFrame) -> None:
        """Put rows for a sink into the outbox."""
        if not rows.height or self.epoch.silent:
            return
        self.count(SINK, sink, "given", rows.height)
        step = self.plan.step(sink)
        assert isinstance(step, steps.Sink)
        assert isinstance(step.connector, Shipped | Sink)
        outbox = step.connector.outbox
        file = delivery(self.epoch.number, sink, self.subquery.name, self.instance, uuid.uuid4().hex[:8], outbox.suffix)
        path = self.epoch.tiers.here / file
        path.parent.mkdir(parents=True, exist_ok=True)
        self.epoch.tiers.with_room(lambda: outbox.write(rows, path))
        file = self.epoch.tiers.settle(file)
        self.rows_out += rows.height
        digest = f"{digest_of_rows(rows):x}" if self.epoch.digested else ""
        self.outbox.append(Delivery(sink, file, rows.height, self.instance, digest))

    def report(self, **more: object) -> Item:
        """Return what was done."""
        now = time.perf_counter()
        report = TaskReport(
            self.subquery.name,
            self.instance,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            rejected=self.rejected,
            busy=now - self.started,
            wait=self.started - self.entered,
            began=time.time() - (now - self.entered),
            cpu=time.process_time() - self.processor,
            outbox=tuple(self.outbox),
            buffers=tuple(self.buffers),
            accounts=self.accounts,
            samples=tuple(self.samples),
            traffic=NONE if self.epoch.tiers.cache is None else taken(),
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
    topic: str | None = None
    """The topics of its rows, in case two physical streams are mistaken for one."""


def source_task(plan: Plan, epoch: Epoch, partition: int) -> Iterator[Item]:
    """Read the slices of one instance of a prefix."""
    name, instance = epoch.topology.instance_of(0, partition)
    if name in epoch.replayed:
        work = Work(plan, epoch, plan.subquery(name), instance)
        for blob in sent_before(epoch, name, instance):
            yield from work.send(blob)
        yield work.report()
        return
    slices = epoch.slices[name][instance]
    with outside(f"{', '.join(sorted({s.source for s in slices}) or [name])} (source)"):
        yield from run_prefix(plan, epoch, name, instance, _read(plan, slices, apart=epoch.silent))


@contextmanager
def outside(step: str) -> Iterator[None]:
    """Name the step that found something outside unavailable, so that the driver knows that it may be back soon."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UnavailableError) or not of_the_outside(error):
            raise
        raise UnavailableError(step, said(error)) from error


def _read(plan: Plan, slices: Iterable[Slice], *, apart: bool = False) -> Iterator[Arrival]:
    """Read slices, and neighbours together; not those of several epochs that are done again: time may have moved between them."""
    together: Slice | None = None
    for part in slices:
        if together is not None and not apart and together.is_before(part):
            data = _reader(plan, part).joined(together, part)
            if data is not None:
                together = together.with_next(part, data)
                continue
        if together is not None:
            yield Arrival(together, _reader(plan, together).read(together))
        together = part
    if together is not None:
        yield Arrival(together, _reader(plan, together).read(together))


def _reader(plan: Plan, part: Slice) -> Source:
    source = plan.step(part.source)
    assert isinstance(source, steps.Source)
    reader = part.reader or source.connector
    assert isinstance(reader, Source)
    return reader


def run_prefix(
    plan: Plan, epoch: Epoch, name: str, instance: InstanceId, arrivals: Iterable[Arrival], reading: float = 0.0
) -> Iterator[Item]:
    """Judge what arrived, run the stateless prefix, send blobs; `reading` is how many seconds reading took, which counts as work."""
    began = time.perf_counter() - reading
    work = Work(plan, epoch, plan.subquery(name), instance, began, began)
    ranks = origin_ranks(plan, epoch.origins)
    filtered = any(isinstance(plan.step(step), steps.Filter | steps.Split) for step in work.subquery.chain)
    counts: dict[str, dict[str, int]] = {}
    times: dict[str, dict[str, Micros]] = {}
    greatest: dict[str, Micros] = {}
    topics: dict[str, dict[str, str]] = {}
    made: dict[Output, list[pl.LazyFrame]] = {}
    for arrival in arrivals:
        part, source = arrival.part, plan.step(arrival.part.source)
        assert isinstance(source, steps.Source)
        now = max(part.time, times.get(part.source, {}).get(part.stream, gate.BEGINNING))
        origin = ranks[part.source]
        got = ingest(
            source, part.source, part, arrival.read, now, ordered=work.ordered, origin=origin, filtered=filtered
        )
        if got.time is not None:
            times.setdefault(part.source, {})[part.stream] = got.time
        if got.greatest is not None:
            greatest[part.source] = max(got.greatest, greatest.get(part.source, got.greatest))
        made.setdefault((part.source, steps.OUT), []).append(got.accepted)
        count = counts.setdefault(part.source, {"read": 0, "accepted": 0, "late": 0, "rejected": 0})
        count["read"] += _seen(part, got)
        count["accepted"] += got.count
        for port, frame in ((steps.LATE, got.late), (steps.REJECTED, got.rejected)):
            if frame is not None:
                made.setdefault((part.source, port), []).append(frame.lazy())
                count[port] += frame.height
        if len(work.samples) < OF_EPOCH:
            work.samples += of_late(part.source, part.stream, got.late, got.time) if got.late is not None else []
            work.samples += of_rejected(part.source, got.rejected) if got.rejected is not None else []
        if arrival.topic is not None:
            topics.setdefault(part.source, {})[part.stream] = arrival.topic
        work.rows_in += part.rows
    if not made:
        yield from work.emit_nothing(times, greatest)
        yield work.report(times=times, greatest=greatest, sources=counts)
        return
    for source_name in work.subquery.sources:  # a source without rows still sends its headers
        if (source_name, steps.OUT) not in made:
            made[source_name, steps.OUT] = [_nothing(plan, source_name, work.ordered)]
    frames = {key: pl.concat(parts) if len(parts) > 1 else parts[0] for key, parts in made.items()}
    native = all(isinstance(plan.step(s).connector, Source) for s in work.subquery.sources)  # type: ignore[attr-defined]
    yield from work.emit(frames, times, greatest, Numbering(work.start, "kept" if native else "whole"))
    yield work.report(times=times, greatest=greatest, sources=counts, topics=topics)


def _seen(part: Slice, got: Ingested) -> int:
    """Count the rows that a slice turned out to have; a connector that says exactly how many must be right."""
    rows = got.count + sum(frame.height for frame in (got.late, got.rejected) if frame is not None)
    if part.exact and rows != part.rows:
        raise UserCodeError(
            f"{part.source} (source)",
            f"a slice of the physical stream {part.stream!r} has {plural(rows, 'row')}, but {part.rows} were announced",
            "read exactly the rows of the slice; if their number is not known before, give the slice exact=False",
        )
    return rows


def instance_task(plan: Plan, epoch: Epoch, level: int, partition: int, items: Iterable[Item]) -> Iterator[Item]:
    """Take blobs through the gate into the stateful head, run the steps after it, send blobs."""
    name, instance = epoch.topology.instance_of(level, partition)
    with outside(f"{name} (subquery)"):
        try:
            yield from _instance_task(plan, epoch, name, instance, level, items)
        except LostError as error:  # Spark would try again, each time with a worker that has to import everything
            found = TaskReport(name, instance, lost=(error.path, error.problem, error.hint))
            yield REPORT, 0, json.dumps(found.to_json()).encode()


def _instance_task(
    plan: Plan, epoch: Epoch, name: str, instance: InstanceId, level: int, items: Iterable[Item]
) -> Iterator[Item]:
    entered = time.perf_counter()
    payloads: list[bytes] = []
    for item in items:
        if item[0] == level:
            payloads.append(item[2])
        else:
            yield item
    blobs = [Blob.decode(payload) for payload in sorted(payloads)]  # whichever came first
    work = Work(plan, epoch, plan.subquery(name), instance, entered)
    times = gate.later(epoch.times, [b.times for b in blobs])
    greatest = gate.greatest(epoch.greatest, [b.greatest for b in blobs])
    work.rows_in = sum(b.tuples.height for b in blobs if b.tuples is not None)
    operator = operator_of(plan, name)
    view = StateView(epoch, name, instance, operator.migrated if name in epoch.migrated else operator.adapted)
    for blob in blobs:
        if blob.tuples is not None:
            work.count(EXCHANGE, said_of(plan.exchanges[blob.exchange]), "received", blob.tuples.height)
    arrived = _by_side(plan, name, blobs)
    if expired := operator.expired(view.marks, arrived):
        work.count(STEP, name, "expired", expired)
    result = operator.run(view, arrived, _clock(plan, work.subquery, times, greatest))
    step, rejected = work.subquery.head, result.rejected
    assert step is not None
    if rejected is not None:
        work.rejected = rejected.height
        work.samples += of_rejected(step, rejected)
    numbering = Numbering(work.start, "whole" if isinstance(result.rows, pl.DataFrame) else "pieces")
    for rows in result.pieces:
        if not rows.height and rejected is None:
            yield from work.emit_nothing(times, greatest)
            continue
        made = {(step, steps.OUT): rows.lazy()}
        if work.ordered:
            made[step, steps.OUT] = rows.lazy().with_columns(order.of_step(origin_ranks(plan, epoch.origins)[step]))
        if rejected is not None:
            made[step, steps.REJECTED], rejected = rejected.lazy(), None
        yield from work.emit(made, times, greatest, numbering)
    segments = operator.write(view, result)
    replaced = tuple(n for n in result.writes if operator.tables[n].whole)
    buckets = _rows_per_bucket(blobs, work.subquery.buckets or 1)
    yield work.report(marks=dict(result.marks), replaced=replaced, segments=segments, buckets=buckets)


def whole_epoch(plan: Plan, epoch: Epoch, beside: Iterable[Item] = ()) -> list[Item]:
    """Do the work of all tasks of an epoch in this process, level by level; return what is for the driver. `beside` has the output of further tasks of level 0."""
    topology = epoch.topology
    items: list[Item] = [i for p in range(topology.partitions(0)) for i in source_task(plan, epoch, p)]
    items += beside
    for level in range(1, len(topology.levels)):
        inboxes: list[list[Item]] = [[] for _ in range(topology.partitions(level))]
        for item in items:
            inboxes[item[1] % len(inboxes) if item[0] != REPORT else 0].append(item)
        items = [i for p, inbox in enumerate(inboxes) for i in instance_task(plan, epoch, level, p, inbox)]
    return items


def said_of(exchange: Exchange) -> str:
    """Return the name of an exchange, the same in every epoch."""
    origin = exchange.step if exchange.port == steps.OUT else f"{exchange.step}.{exchange.port}"
    side = f", side {exchange.side + 1}" if exchange.side else ""
    return f"{exchange.origin}: {origin} → {exchange.target}{side}"


def _by_side(plan: Plan, name: str, blobs: Sequence[Blob]) -> list[pl.DataFrame | None]:
    """Put the tuples of all senders together, for each input of the head."""
    sides: list[list[pl.DataFrame]] = [[] for _ in range(1 + max(e.side for e in plan.exchanges if e.target == name))]
    for blob in blobs:
        if blob.tuples is not None:
            sides[plan.exchanges[blob.exchange].side].append(blob.tuples)
    return [pl.concat(parts) if parts else None for parts in sides]


def _rows_per_bucket(blobs: Sequence[Blob], buckets: int) -> tuple[int, ...]:
    """Count what came for each bucket; a tuple with several counts in each."""
    counts = np.zeros(buckets, dtype=np.int64)
    for blob in blobs:
        if blob.tuples is not None:
            column = blob.tuples[BUCKET] if BUCKET in blob.tuples.columns else blob.tuples[BUCKETS].explode()
            counts += np.bincount(column.to_numpy(), minlength=buckets)
    return tuple(counts.tolist())


def _clock(plan: Plan, subquery: Subquery, times: Times, greatest: Mapping[str, Micros]) -> Clock:
    upstream = [sources_upstream_of_side(plan, subquery, side) for side in (0, 1)]
    return Clock(
        gate.merged_time(times, sources_upstream(plan, subquery)),
        tuple(gate.merged_time(times, sources) for sources in upstream if sources),
        max((greatest.get(s, gate.BEGINNING) for s in sources_upstream(plan, subquery)), default=gate.BEGINNING),
    )


def _nothing(plan: Plan, source: str, ordered: bool) -> pl.LazyFrame:
    frame = pl.LazyFrame(schema=plan.step(source).schema)
    return frame.with_columns(order.of_source(0, "", 0)) if ordered else frame
