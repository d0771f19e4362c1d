"""Pass 2: cut the query into subqueries, one per stateful step (SC-5: operator-set-cloud)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from springtide.compiler.plan import Exchange, Plan, Subquery
from springtide.query import steps
from springtide.query.errors import QueryError
from springtide.query.graph import Graph


def split(plan: Plan) -> Plan:
    """Make a subquery of each stateful step with the stateless steps that follow it, and of each stateless prefix.

    Tuples have to be redistributed only before stateful steps, so that is where the query is cut. Sources and the stateless
    steps after them form a prefix; prefixes that are connected, or that feed the same stateful step, are one: the inputs
    of a join are read in the same tasks. A stateless step after several subqueries (a union) runs in each of them.

    An exact ranking becomes two subqueries: `top` counts each value in one place and cuts its ranking to k; `top.merge` makes
    one ranking from those of all instances. The steps after the ranking belong to the latter.
    """
    graph = plan.graph
    after = _after(graph)
    prefixes = [_subquery(graph, after, "+".join(sources), None, sources) for sources in _prefixes(graph, after)]
    stateful = [_subquery(graph, after, name, name, ()) for name, step in graph.steps.items() if step.stateful]
    counting = [Subquery(s.name, s.head, (), (), ()) for s in stateful if merged(graph.steps[s.name])]
    names = [s.name for s in counting]
    last = [replace(s, name=f"{s.name}.merge", merges=True) if s.name in names else s for s in stateful]
    exchanges = [
        Exchange(subquery.name, edge.origin, edge.port, edge.target, edge.side)
        for edge in graph.edges
        if graph.steps[edge.target].stateful
        for subquery in (*prefixes, *last)
        if edge.origin in subquery.steps
    ]
    for name in names:
        after_last = max(i for i, e in enumerate(exchanges) if e.target == name) + 1
        exchanges.insert(after_last, Exchange(name, name, steps.OUT, f"{name}.merge", 0))
    place = {s.name: i for i, s in enumerate(stateful)}
    subqueries = (*prefixes, *sorted((*counting, *last), key=lambda s: (place[s.head or ""], s.merges)))
    _check_names(subqueries)
    return replace(plan, subqueries=subqueries, exchanges=tuple(exchanges))


def merged(step: steps.Step) -> bool:
    """Return whether the results of a step's instances are partial and have to be merged, as those of exact rankings are."""
    return isinstance(step, steps.TopK) and step.sketch is None


def _after(graph: Graph) -> dict[str, list[str]]:
    after = defaultdict(list)
    for edge in graph.edges:
        after[edge.origin].append(edge.target)
    return after


def _reached(graph: Graph, after: dict[str, list[str]], starts: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the stateless steps and sinks after `starts`, and the stateful steps that stop the walk."""
    reached, stops, todo = set[str](), set[str](), list(starts)
    while todo:
        for target in after.get(todo.pop(), ()):
            if graph.steps[target].stateful:
                stops.add(target)
            elif target not in reached:
                reached.add(target)
                todo.append(target)
    return reached, stops


def _prefixes(graph: Graph, after: dict[str, list[str]]) -> list[tuple[str, ...]]:
    """Return the sources in groups that reach a common step."""
    groups: list[tuple[list[str], set[str]]] = []
    for source in graph.of_kind(steps.Source):
        reached, stops = _reached(graph, after, [source])
        sources, touched = [source], reached | stops
        for group in [g for g in groups if g[1] & touched]:
            groups.remove(group)
            sources, touched = group[0] + sources, group[1] | touched
        groups.append((sources, touched))
    place = {name: i for i, name in enumerate(graph.steps)}
    ordered = [tuple(sorted(sources, key=place.__getitem__)) for sources, _ in groups]
    return sorted(ordered, key=lambda sources: place[sources[0]])


def _subquery(
    graph: Graph, after: dict[str, list[str]], name: str, head: str | None, sources: tuple[str, ...]
) -> Subquery:
    reached, _ = _reached(graph, after, [head] if head else sources)
    ordered = [step for step in graph.steps if step in reached]
    sinks = graph.of_kind(steps.Sink)
    chain = tuple(step for step in ordered if step not in sinks)
    return Subquery(name, head, sources, chain, tuple(step for step in ordered if step in sinks))


def _check_names(subqueries: Sequence[Subquery]) -> None:
    seen: dict[str, Subquery] = {}
    for subquery in subqueries:
        other = seen.setdefault(subquery.name, subquery)
        if other is not subquery:
            what = "the merge of a ranking" if subquery.merges or other.merges else "a prefix of several sources"
            problem = f"the name is already taken by {what}"
            raise QueryError(f"{subquery.name} (subquery)", problem, "give the step or the source another name")
