"""The query as a graph, for people: written into the checkpoint, so that it can be drawn without the program."""

from __future__ import annotations

from typing import Any

from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.runtime.tasks import said_of
from springtide.state.accounts import EXCHANGE, SINK, SOURCE


def drawing(plan: Plan) -> dict[str, Any]:
    """Return the subqueries with their steps, the edges within them, and what goes from one to the other.

    `account` is the name under which the rows of an edge are counted (`state/accounts.py`), where they are. Where a source reads and
    a sink writes is left out: such texts may have secrets in them.

    >>> hourly = calls.aggregate(by="src", window=st.tumbling("1h"), n=st.count(), name="hourly")
    >>> drawn = drawing(st.Query("hourly", hourly.to(st.memory_sink())).plan())
    >>> [(part["name"], part["steps"]) for part in drawn["subqueries"]]
    [('calls', ['calls']), ('hourly', ['hourly', 'sink'])]
    >>> drawn["exchanges"][0]["account"]
    'exchange calls: calls → hourly'
    """
    graph = plan.graph
    return {
        "kinds": {name: step.kind for name, step in graph.steps.items()},
        "subqueries": [{"name": q.name, "head": q.head, "steps": list(q.steps)} for q in plan.subqueries],
        "edges": [
            _edge(plan, q.name, edge.origin, edge.port, edge.target)
            for q in plan.subqueries
            for edge in graph.edges
            if edge.origin in q.steps and edge.target in q.steps and edge.target != q.head
        ],
        "exchanges": [
            {"from": e.origin, "step": e.step, "port": e.port, "to": e.target, "account": f"{EXCHANGE} {said_of(e)}"}
            for e in plan.exchanges
        ],
    }


def _edge(plan: Plan, subquery: str, origin: str, port: str, target: str) -> dict[str, Any]:
    account = None
    if isinstance(plan.step(target), steps.Sink):
        account = f"{SINK} {target}"
    elif isinstance(plan.step(origin), steps.Source) and port == steps.OUT:
        account = f"{SOURCE} {origin}"
    return {"in": subquery, "from": origin, "port": port, "to": target, "account": account}
