"""The graph of a query: every step that its sinks need, named and in order."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from springtide.query import steps
from springtide.query.connectors import SinkConnector
from springtide.query.errors import QueryError, article, nearest, shown
from springtide.query.names import check_name
from springtide.query.usage import usage

StepType = TypeVar("StepType", bound=steps.Step)
GraphType = TypeVar("GraphType", bound="Graph")


@dataclass(frozen=True)
class Edge:
    """One step's output going into another step: `port` of `origin` is input number `side` of `target`."""

    origin: str
    port: str
    target: str
    side: int


class Graph:
    """A directed acyclic graph of steps. A step without a name is named after its kind, with a number if that name is taken."""

    @usage("st.Query('hourly', stream.to(st.parquet_sink('out/')))", lambda *_: "(query)")
    def __init__(self, name: str, *sinks: steps.Sink) -> None:
        """Collect the steps that lead to `sinks`; refuse cycles, names used twice and a query without sinks."""
        if not isinstance(name, str) or not name.strip():
            raise QueryError("(query)", "the query has no name", "give it first: st.Query('heavy-callers', …)")
        check_name("query", name)
        label = f"{name} (query)"
        if not sinks:
            raise QueryError(label, "the query has no sink", "end a stream with .to(sink) and give it to st.Query")
        for sink in sinks:
            _check_sink(label, sink)
        self.name = name
        order = _in_order(sinks)
        self._names = _name(order)
        self.steps = {self._names[step]: step for step in order}
        """Name → step; every step comes after its inputs."""
        _check_places(self.of_kind(steps.Sink))

    def __iter__(self) -> Iterator[steps.Step]:
        """Return the steps, each one after its inputs."""
        return iter(self.steps.values())

    def name_of(self, step: steps.Step) -> str:
        """Return the name that a step has in this query."""
        if step not in self._names:
            raise QueryError(
                f"{step.name or step.kind} ({step.kind})",
                f"this step is not in the query {self.name!r}",
                "a query has only the steps that lead to its sinks",
            )
        return self._names[step]

    def step(self, name: str) -> steps.Step:
        """Return the step with that name."""
        if not isinstance(name, str) or name not in self.steps:
            given = name if isinstance(name, str) else shown(name)
            problem = f"the query {self.name!r} has no such step"
            raise QueryError(f"{given} (unknown)", problem, nearest(given, self.steps))
        return self.steps[name]

    def of_kind(self, kind: type[StepType]) -> dict[str, StepType]:
        """Return the steps of one kind by name."""
        return {name: step for name, step in self.steps.items() if isinstance(step, kind)}

    def with_sinks(self: GraphType, sinks: Mapping[str, steps.Sink]) -> GraphType:
        """Return the same graph with the sinks of these names replaced."""
        other = copy.copy(self)
        other.steps = {name: sinks.get(name, step) for name, step in self.steps.items()}
        other._names = {step: name for name, step in other.steps.items()}
        return other

    def leading_to(self: GraphType, names: Collection[str]) -> GraphType:
        """Return the part of the graph from which the input of these steps comes, and the steps; it has no sinks."""
        other, todo, needed = copy.copy(self), [self.step(name) for name in names], set[steps.Step]()
        while todo:
            step = todo.pop()
            if step not in needed:
                needed.add(step)
                todo += [stream.step for stream in step.inputs]
        other.steps = {name: step for name, step in self.steps.items() if step in needed}
        other._names = {step: name for name, step in other.steps.items()}
        return other

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every connection, in the order of the steps."""
        return tuple(
            Edge(self._names[stream.step], stream.port, name, side)
            for name, step in self.steps.items()
            for side, stream in enumerate(step.inputs)
        )


def _check_places(sinks: Mapping[str, steps.Sink]) -> None:
    """Refuse two sinks that write to the same place: one would take the other's rows for its own."""
    places: dict[object, str] = {}
    for name, sink in sinks.items():
        place = sink.connector.place
        if place is not None and (other := places.setdefault(place, name)) != name:
            raise QueryError(
                f"{name} (sink)",
                f"the sink {other} writes to the same place: {sink.describe()}",
                "give each a place of its own, or put the streams together first, with .union",
            )


def _check_sink(label: str, sink: object) -> None:
    if isinstance(sink, steps.Sink):
        return
    hint = "end the stream with .to(sink)"
    if isinstance(sink, list | tuple):
        hint = "give the sinks one by one: st.Query(name, *sinks)"
    elif isinstance(sink, SinkConnector):
        hint = "say what goes there: stream.to(sink)"
    raise QueryError(label, f"{shown(sink)} is not the end of a stream", hint)


def _in_order(sinks: Sequence[steps.Sink]) -> list[steps.Step]:
    """Return the steps, each one after its inputs (depth first, without recursion because queries can be long)."""
    done: dict[steps.Step, None] = {}
    for sink in sinks:
        path: dict[steps.Step, None] = {}
        todo: list[tuple[steps.Step, bool]] = [(sink, False)]
        while todo:
            step, inputs_done = todo.pop()
            if inputs_done:
                path.pop(step)
                done[step] = None
            elif step in path:
                ring = [*list(path)[list(path).index(step) :], step]
                raise QueryError(
                    f"{step.name or step.kind} ({step.kind})",
                    f"the steps form a cycle: {' ← '.join(s.name or s.kind for s in ring)}",
                    "a step can only follow steps that were made before it",
                )
            elif step not in done:
                path[step] = None
                todo.append((step, True))
                todo.extend((stream.step, False) for stream in reversed(step.inputs))
    return list(done)


def _name(order: Sequence[steps.Step]) -> dict[steps.Step, str]:
    given: dict[str, steps.Step] = {}
    for step in order:
        if step.name is not None:
            check_name(step.kind, step.name)
            if step.name in given:
                other = given[step.name]
                raise QueryError(
                    f"{step.name} ({step.kind})",
                    f"the name {step.name!r} is already taken by {article(other.kind)}",
                    "give one of them another name",
                )
            given[step.name] = step
    names: dict[steps.Step, str] = {step: name for name, step in given.items()}
    for step in order:
        if step not in names:
            name, number = step.kind, 1
            while name in given:
                number += 1
                name = f"{step.kind}-{number}"
            given[name] = step
            names[step] = name
    return names
