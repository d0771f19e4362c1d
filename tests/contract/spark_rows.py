"""The kind `spark_rows`: micro-batches of rows that Spark reads, through the real tasks, beside the reference.

Physical streams come late, fall silent, are split over tasks and shuffled; micro-batches fail, are repeated, and runs start anew
between them. What is late, where a new stream begins and who is idle is worked out here once more, row by row, and written as markers into
the reference's input.

    micro-batch   0        1          2                  quiet        3
    stream 0      5 6 9    12 11      20 24                           31
    stream 1                          7 (late) 22        idle         …
                                      ↑ begins at the time of the source, 11
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa

import springtide as st
from springtide.compiler.plan import Plan
from springtide.query.connectors import Marker
from springtide.query.errors import SpringtideError
from springtide.query.types import END_OF_TIME
from springtide.runtime import inprocess
from springtide.runtime.engine import Batch, Engine, Options
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.spark.records import is_taken
from springtide.runtime.spark.rows import row_task, split
from springtide.sources.spark import SparkSource, label_of
from springtide.state.checkpoint import Checkpoint
from springtide.testing import END, PAUSE, compare

SECOND = 1_000_000
BEGINNING = -(2**63)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = pl.Schema(
    {
        "key": pl.String(),
        "value": pl.Int64(),
        "ts": st.TIME,
        "topic": pl.String(),
        "partition": pl.Int64(),
        "offset": pl.Int64(),
    }
)
Row = dict[str, Any]


class Crash(SpringtideError):
    """An epoch that dies before its commit."""


# ── the input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Feed:
    """A source that Spark reads: what it says of itself, and what comes."""

    name: str
    connector: SparkSource
    disorder: int
    idle_after: int | None
    partitions: list[tuple[str, int]]
    first: dict[tuple[str, int], int]
    """The micro-batch from which on there are rows."""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    now: int = 0
    """Seconds of event time."""

    @staticmethod
    def random(random: Random, name: str) -> Feed:
        stream = random.choice([(), ("partition",), ("topic", "partition"), ("partition",)])
        topics = ["x", "y"] if "topic" in stream else ["x"]
        partitions = [(t, p) for t in topics for p in range(random.randint(1, 3) if stream else 1)]
        connector = SparkSource(None, SCHEMA, stream, "offset" if random.random() < 0.6 else None)
        first = {p: 0 if random.random() < 0.5 else random.randint(0, 5) for p in partitions}
        return Feed(name, connector, random.choice([0, 0, 2, 6]), random.choice([None, 3, 8]), partitions, first)

    def rows(self, random: Random, batch: int) -> list[Row]:
        """Make the rows of a micro-batch, in the order in which they were written."""
        made: list[Row] = []
        self.now += random.choice([0, 1, 4, 12])
        for topic, partition in self.partitions:
            if batch < self.first[topic, partition] or random.random() < 0.3:
                continue
            for _ in range(random.randint(0, 5)):
                offset = self.offsets.get((topic, partition), 0)
                seconds = max(0, self.now + random.randint(-3, 5) - (random.random() < 0.1) * random.randint(5, 30))
                made.append(
                    {
                        "key": random.choice("abc"),
                        "value": random.randint(0, 9),
                        "ts": seconds * SECOND,
                        "topic": topic,
                        "partition": partition,
                        "offset": offset,
                    }
                )
                self.offsets[topic, partition] = offset + (random.random() < 0.9)
        return made


def stream_of(connector: SparkSource, row: Row) -> str:
    return label_of([row[column] for column in connector.stream]) if connector.stream else "0"


# ── what must come of it ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Model:
    """The rules of docs/semantics.md, said once more: where streams begin, who is idle, how far time is."""

    feeds: Mapping[str, Feed]
    times: dict[str, dict[str, int]]
    inputs: dict[str, dict[str, list[Any]]]
    seen: dict[tuple[str, str], float] = field(default_factory=dict)
    heard: float = 0.0
    began: float = 0.0

    def start(self, now: float) -> None:
        """Forget what only a run knows."""
        self.seen, self.heard, self.began = {}, now, now

    def idle(self, native: Mapping[str, int]) -> None:
        """Move silent streams to the smallest time of the others."""
        times = {(n, s): t for n in self.feeds for s, t in (self.times[n] or {"": BEGINNING}).items()}
        quiet = {
            key
            for key in times
            if (limit := self.feeds[key[0]].idle_after) is not None
            and self.heard - self.seen.get(key, self.began) >= limit
        }
        awake = [t for key, t in times.items() if key not in quiet] + [t for t in native.values() if t != END_OF_TIME]
        upto = min(awake) if awake else max(times.values())
        for name, stream in quiet:
            if times[name, stream] < upto:
                self.times[name][stream] = upto
                self.inputs[name].setdefault(stream, []).append(Marker("idle", upto))

    def batch(self, rows: Mapping[str, list[Row]], now: float) -> None:
        """Take a micro-batch in: new streams first, then each stream's rows in order."""
        self.heard = now
        for name, made in rows.items():
            feed, known = self.feeds[name], self.times[name]
            beginning = min(known.values(), default=BEGINNING)
            for stream in sorted({stream_of(feed.connector, row) for row in made}):
                own = [row for row in made if stream_of(feed.connector, row) == stream]
                if stream not in known:
                    known[stream] = beginning
                    self.inputs[name][stream] = [Marker("idle", beginning)] if beginning > BEGINNING else []
                self.seen[name, stream] = now
                before = known[stream]
                for row in sorted(own, key=lambda r: (r["offset"] if feed.connector.positions else 0, r["ts"], str(r))):
                    if row["ts"] >= (known[stream] if feed.connector.positions else before):
                        known[stream] = max(known[stream], row["ts"] - feed.disorder * SECOND)
                    self.inputs[name][stream].append(row)
            if len(known) > 1 and "" in known:
                del known[""], self.inputs[name][""]


# ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Case:
    """A query, its micro-batches, and the machine that they come to."""

    random: Random
    folder: Path
    feeds: dict[str, Feed]
    query: st.Query
    plan: Plan
    native: bool
    clock: float = 0.0
    rows: dict[str, list[Row]] | None = None
    """The micro-batch at hand."""
    crash: bool = False
    scattered: bool = False
    whole: bool = False
    """As in `SparkExecutor`: the rows of a physical stream are brought together."""

    def execute(self, epoch: Epoch) -> list[TaskReport]:
        """Run an epoch as `SparkExecutor` does, with the tasks one after the other."""
        reports = self._executed(epoch)
        if not self.whole and not epoch.silent and split(self.plan, epoch, reports):
            self.whole = True
            reports = self._executed(epoch)
        if self.crash:
            self.crash = False
            raise Crash("the executor is gone")
        return reports

    def _executed(self, epoch: Epoch) -> list[TaskReport]:
        tasks = [] if self.rows is None or epoch.silent else self._tasks(self.rows)
        items = [i for number, task in enumerate(tasks) for i in row_task(self.plan, epoch, number, task)]
        return inprocess.execute(self.plan, epoch, items)

    def _tasks(self, rows: Mapping[str, list[Row]]) -> list[list[pa.RecordBatch]]:
        """Distribute the rows of a micro-batch to tasks, in any order and in any batches: physical streams whole, or not."""
        many = self.random.choice([1, 2, 2, 3])
        tasks: list[list[tuple[str, Row]]] = [[] for _ in range(many)]
        for name, made in rows.items():
            connector, places = self.feeds[name].connector, dict[str, int]()
            for row in made:
                at = places.setdefault(stream_of(connector, row), self.random.randrange(many))
                loose = self.scattered and not (self.whole and connector.positions)
                tasks[self.random.randrange(many) if loose else at].append((name, row))
        return [list(self._batches(task)) for task in tasks]

    def _batches(self, task: list[tuple[str, Row]]) -> Iterator[pa.RecordBatch]:
        self.random.shuffle(task)
        while task:
            size = self.random.randint(1, len(task))
            part, task = task[:size], task[size:]
            struct = pl.DataFrame([row for _, row in part], schema=SCHEMA).to_struct("s").to_arrow()
            values = struct.flatten()
            fields = [pa.field(n, v.type) for n, v in zip(SCHEMA, values, strict=True)]
            columns = [
                pa.StructArray.from_arrays(values, fields=fields, mask=pa.array([own != name for own, _ in part]))
                for name in self.feeds
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[f"s{i}" for i in range(len(columns))])


def run_case(seed: int, folder: Path) -> str | None:
    """Feed a query with micro-batches, and compare with the reference."""
    random = Random(seed)
    feeds = {name: Feed.random(random, name) for name in random.choice([("a",), ("a",), ("a", "b")])}
    native = random.random() < 0.3
    query, rows = _query(random, feeds, native)
    case = Case(random, folder, feeds, query, query.plan(buckets=8), native, scattered=random.random() < 0.5)
    model = Model(feeds, {n: {} for n in feeds}, {n: {} for n in feeds})
    engine = _opened(case, model)
    batch, lows = 0, dict.fromkeys((*feeds, "c"), BEGINNING)
    try:
        for _ in range(random.choice([2, 3, 3, 4, 5, 8])):
            case.clock += random.choice([0, 1, 3, 6])
            what = random.choice(["batch", "batch", "batch", "quiet", "start", "repeat", "scale"])
            if what == "batch":
                case.rows = {n: made for n, f in feeds.items() if (made := f.rows(random, batch))}
                case.crash = random.random() < 0.15
                try:
                    _epoch(engine, model, case, Batch(batch, f"of {batch}"))
                except Crash:
                    engine.close()
                    engine = _opened(case, model)
                    _epoch(engine, model, case, Batch(batch, f"of {batch}"))
                case.rows, batch = None, batch + 1
            elif what == "quiet":
                engine.intake.nothing_new()
                model.heard = case.clock
                if engine.has_work():
                    _epoch(engine, model, case, None)
            elif what == "start":
                engine.close()
                engine = _opened(case, model)
            elif what == "repeat" and batch:
                if not is_taken(folder, engine.manifest, batch - 1, f"of {batch - 1}"):
                    return f"micro-batch {batch - 1} would be taken twice"
            elif what == "scale":
                engine.scale("out", random.randint(1, 3))
            for name, state in engine.manifest.sources.items():
                low = min(state.times.values(), default=BEGINNING)
                if low < lows[name]:
                    return f"the time of {name} went back from {lows[name]} to {low}"
                lows[name] = low
        while native and not ("c" in engine.manifest.sources and engine.manifest.sources["c"].ended):
            _epoch(engine, model, case, None)
        for name in feeds:
            if (found := engine.manifest.sources.get(name)) and found.times != model.times[name]:
                return f"the times of {name} are {found.times}, not {model.times[name]}"
        return _compared(case, model, engine, rows)
    finally:
        engine.close()


def _epoch(engine: Engine, model: Model, case: Case, batch: Batch | None) -> None:
    engine.has_work()
    before = engine.manifest.sources
    engine.run(batch)
    model.idle(before["c"].times if case.native and "c" in before else {"0": BEGINNING} if case.native else {})
    if batch is not None:
        assert case.rows is not None
        model.batch(case.rows, case.clock)


def _opened(case: Case, model: Model) -> Engine:
    options = Options(case.random.randint(1, 2), timer=lambda: case.clock, clock=lambda: 0.0)
    engine = Engine(case.plan, Checkpoint(case.folder / "ckpt"), case.execute, options)
    engine.begin()
    model.start(case.clock)
    return engine


def _query(random: Random, feeds: Mapping[str, Feed], native: bool) -> tuple[st.Query, list[Any]]:
    sources = [
        st.source(
            name,
            feed.connector,
            ts="ts",
            max_disorder=f"{feed.disorder}s",
            idle_after=None if feed.idle_after is None else f"{feed.idle_after}s",
        )
        for name, feed in feeds.items()
    ]
    rows: list[Any] = []
    sinks = [s.late.to(st.memory_sink(), name=f"late_{n}") for s, n in zip(sources, feeds, strict=True)]
    if native:
        for second in sorted(random.randint(0, 60) for _ in range(random.randint(0, 12))):
            rows += [PAUSE] * (random.random() < 0.4)
            rows.append(
                {"key": "n", "value": 1, "ts": second * SECOND, "topic": None, "partition": None, "offset": None}
            )
        sources.append(st.source("c", st.memory([_timed(r) for r in rows], schema=dict(SCHEMA)), ts="ts"))
    stream = st.union(*sources) if len(sources) > 1 else sources[0]
    kind = random.choice(["tumbling", "sliding", "session", "last", "join"])
    if kind == "join" and len(sources) == 2:
        out = sources[0].join(sources[1], on="key", within="3s", name="out")
    elif kind == "last":
        out = stream.aggregate(by="key", window=st.last_n(3, every=2), all=st.collect("value"), name="out")
    else:
        window = {"sliding": st.sliding("6s", every="2s"), "session": st.session("2s")}.get(kind, st.tumbling("5s"))
        out = stream.aggregate(by="key", window=window, n=st.count(), last=st.last("value"), name="out")
    return st.Query("rows", out.to(st.memory_sink(), name="result"), *sinks), rows


def _timed(row: Any) -> Any:
    return row if isinstance(row, Marker) else row | {"ts": EPOCH + timedelta(microseconds=row["ts"])}


def _compared(case: Case, model: Model, engine: Engine, rows: list[Any]) -> str | None:
    inputs: dict[str, Any] = {
        name: {stream: [_timed(r) for r in items] for stream, items in streams.items()}
        for name, streams in model.inputs.items()
    }
    if case.native:
        inputs["c"] = [*(_timed(r) for r in rows), END]
    expected = case.query.run_reference(inputs, bounded=False)
    for name in ("result", *(f"late_{n}" for n in case.feeds)):
        found = case.query.step(name).connector.rows()  # type: ignore[attr-defined]
        wanted = expected.rows(name)
        compare(found if found.width else wanted.clear(), wanted)
    for name, streams in model.inputs.items():
        state = engine.manifest.sources.get(name)
        came = sum(not isinstance(r, Marker) for items in streams.values() for r in items)
        taken = state.accepted + state.late + state.rejected if state else 0
        if came != taken:
            return f"{came} rows came to {name}, and {taken} are accounted for"
    return None
