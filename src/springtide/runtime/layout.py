"""How the state of a query is to be read by people: written into the checkpoint, for `springtide state`."""

from __future__ import annotations

from typing import Any

from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.query.types import COUNT
from springtide.query.windows import Sliding


def layout(plan: Plan) -> dict[str, dict[str, Any]]:
    """Say of each stateful subquery what its state is about: keys, aggregates, and the window's lengths in microseconds.

    >>> hourly = calls.aggregate(by="src", window=st.sliding("1h", every="1m"), n=st.count(), name="hourly")
    >>> layout(st.Query("hourly", hourly.to(st.memory_sink())).plan())
    {'hourly': {'keys': ['src'], 'aggregates': ['n'], 'size': 3600000000, 'every': 60000000}}
    """
    heads = {q.name: plan.step(q.head) for q in plan.subqueries if q.head is not None and not q.merges}
    found: dict[str, dict[str, Any]] = {}
    for name, head in heads.items():
        if isinstance(head, steps.Aggregate):
            found[name] = {"keys": list(head.by), "aggregates": [a.name for a in head.aggregates]}
        elif isinstance(head, steps.TopK):
            found[name] = {"keys": [*head.per, *head.by], "aggregates": [COUNT]}
        elif isinstance(head, steps.Join):
            found[name] = {"keys": [k for k in head.left_on if k in head.right_on]}
        elif isinstance(head, steps.Operate):
            found[name] = {"keys": list(head.keys)}
        if isinstance(head, steps.Aggregate | steps.TopK) and isinstance(head.window, Sliding):
            found[name] |= {"size": head.window.size, "every": head.window.every}
    return found
