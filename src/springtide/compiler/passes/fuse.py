"""Pass 2: find the stateless steps that run as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from springtide.compiler.plan import Plan
from springtide.query import steps

_ONE_IN_ONE_OUT = (steps.Map, steps.Select, steps.Filter, steps.Explode)


def fuse(plan: Plan) -> Plan:
    """Put each stateless step into a chain with the one before it, if nobody else takes what that one gives.

    A chain runs as one lazy frame, so Polars optimises across its steps and nothing is written down in between. A `split`
    has several outputs and a `union` several inputs: each stands alone.
    """
    graph = plan.graph
    takers = Counter(edge.origin for edge in graph.edges)
    chains: list[list[str]] = []
    chain_ending_at: dict[str, list[str]] = {}
    for name, step in graph.steps.items():
        if step.stateful or isinstance(step, steps.Source | steps.Sink):
            continue
        before = graph.name_of(step.inputs[0].step)
        chain = chain_ending_at.get(before)
        if chain is None or takers[before] > 1 or not isinstance(step, _ONE_IN_ONE_OUT):
            chains.append(chain := [])
        chain.append(name)
        if isinstance(step, _ONE_IN_ONE_OUT):
            chain_ending_at[name] = chain
    return replace(plan, fused=tuple(map(tuple, chains)))
