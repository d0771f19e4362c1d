"""The interpreter: check all input, then go through the steps of the graph one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

import polars as pl

from springtide.query import steps
from springtide.query.connectors import ONE_STREAM, Rows
from springtide.query.errors import QueryError, nearest, shown
from springtide.query.graph import Graph
from springtide.runtime.reference import stateless
from springtide.runtime.reference.aggregates import aggregate, top_k
from springtide.runtime.reference.ingest import Arrived, arrive, rejected_schema
from springtide.runtime.reference.joins import Clock, join
from springtide.runtime.reference.operators import operate
from springtide.runtime.reference.result import Result
from springtide.runtime.reference.tuples import Tuple, in_frame

Given = Rows | Mapping[str, Rows]
"""The rows of a source, or physical stream → rows."""
Inputs = Mapping[str, Given]
"""Source → its rows."""

Ports = dict[str, list[Tuple]]
"""Output of a step → its tuples."""


Observer = Callable[[str, int, float], None]
"""Is told, for each step, how many rows it processed and how many seconds that took."""


def run(graph: Graph, inputs: Inputs | None, *, bounded: bool, observe: Observer | None = None) -> Result:
    """Interpret a query over all of its input."""
    if inputs is not None and not isinstance(inputs, Mapping):
        hint = 'give the rows of each source by its name: {"calls": rows}'
        raise QueryError(f"{graph.name} (query)", f"inputs={shown(inputs)} does not say which source gets what", hint)
    arrived = _arrive(graph, inputs or {}, bounded, observe)
    run = _Run(arrived)
    for name, step in graph.steps.items():
        begin = perf_counter()
        run.interpret(name, step)
        if observe is not None and not isinstance(step, steps.Source):
            observe(name, sum(map(len, run.input(step))), perf_counter() - begin)
    sources = graph.of_kind(steps.Source)
    return Result(
        sinks={name: _sorted(run.input(sink)[0], sink) for name, sink in graph.of_kind(steps.Sink).items()},
        late={name: _by_position(arrived[name].late, source.schema) for name, source in sources.items()},
        rejected={name: _by_position(arrived[name].rejected, rejected_schema(s)) for name, s in sources.items()},
    )


def _arrive(graph: Graph, inputs: Inputs, bounded: bool, observe: Observer | None) -> dict[str, Arrived]:
    sources = graph.of_kind(steps.Source)
    for name in inputs:
        if name not in sources:
            raise QueryError(f"{graph.name} (query)", f"there is no source {name!r}", nearest(name, sources))
    arrived = {}
    for name, source in sources.items():
        rows = inputs[name] if name in inputs else source.connector.read_all()
        streams = rows if isinstance(rows, Mapping) else {ONE_STREAM: rows}
        begin = perf_counter()
        arrived[name] = arrive(source, name, streams, bounded)
        if observe is not None:
            observe(name, arrived[name].rows, perf_counter() - begin)
    return arrived


def _sorted(tuples: list[Tuple], sink: steps.Sink) -> pl.DataFrame:
    """Return what a sink gets, sorted by ts, then by content: an order that the rows themselves show."""
    return in_frame(sorted(tuples, key=lambda t: (t.ts, t.content)), sink.schema)


def _by_position(tuples: list[Tuple], schema: pl.Schema) -> pl.DataFrame:
    # Sorting is stable: rows of a source without positions stay in the order in which they came.
    return in_frame(sorted(tuples, key=lambda t: t.place), schema)


class _Run:
    """The tuples at every output so far, and where time stands after every step once all input has arrived."""

    def __init__(self, arrived: Mapping[str, Arrived]) -> None:
        self._arrived = arrived
        self._outputs: dict[steps.Step, Ports] = {}
        self._time: dict[steps.Step, int] = {}
        self._greatest: dict[steps.Step, int] = {}

    def input(self, step: steps.Step) -> list[list[Tuple]]:
        """Return the tuples of each input of a step."""
        return [self._outputs[stream.step][stream.port] for stream in step.inputs]

    def interpret(self, name: str, step: steps.Step) -> None:
        """Compute all outputs of one step, whose inputs are done."""
        if isinstance(step, steps.Source):
            self._time[step], self._greatest[step] = self._arrived[name].time, self._arrived[name].greatest
        else:
            self._time[step] = min(self._time[stream.step] for stream in step.inputs)
            self._greatest[step] = max(self._greatest[stream.step] for stream in step.inputs)
        self._outputs[step] = self._ports(name, step)

    def _ports(self, name: str, step: steps.Step) -> Ports:
        if isinstance(step, steps.Source):
            arrived = self._arrived[name]
            return {steps.OUT: arrived.tuples, steps.LATE: arrived.late, steps.REJECTED: arrived.rejected}
        if isinstance(step, steps.Split):
            return stateless.split_each(f"{name} ({step.kind})", step, self.input(step)[0])
        if isinstance(step, steps.Operate):
            label, (first,) = f"{name} ({step.kind})", self.input(step)
            return operate(label, name, step, first, self._time[step], self._greatest[step])
        if isinstance(step, steps.Aggregate):
            return aggregate(f"{name} ({step.kind})", name, step, self.input(step)[0], self._time[step])
        return {steps.OUT: self._out(name, step)}

    def _out(self, name: str, step: steps.Step) -> list[Tuple]:
        label, time = f"{name} ({step.kind})", self._time[step]
        first, *others = self.input(step)
        if isinstance(step, steps.Map | steps.Select):
            return stateless.map_each(label, step, first)
        if isinstance(step, steps.Filter):
            return stateless.filter_each(label, step, first)
        if isinstance(step, steps.Explode):
            return stateless.explode_each(step, first)
        if isinstance(step, steps.Union):
            return [t for tuples in (first, *others) for t in tuples]
        if isinstance(step, steps.TopK):
            return top_k(label, name, step, first, time)
        if isinstance(step, steps.Join | steps.ThetaJoin):
            right_time = self._time[step.inputs[1].step]
            return join(label, name, step, first, others[0], Clock(time, right_time, self._greatest[step]))
        if isinstance(step, steps.Sink):
            return first
        raise NotImplementedError(f"{label}: the reference does not know this kind of step")
