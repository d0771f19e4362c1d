"""A plan as text: the steps as the user wrote them, the subqueries, and what goes between them."""

from __future__ import annotations

from springtide.compiler.plan import Exchange, Plan, Subquery
from springtide.compiler.tables import columns
from springtide.query import steps

WIDTH = 120


def explain(plan: Plan, *, width: int = WIDTH) -> str:
    """Return a plan as text for people, in lines of at most `width` characters where possible.

    >>> clicks = st.source("clicks", st.memory(schema={"page": pl.String, "ts": st.TIME}), ts="ts")
    >>> hits = clicks.aggregate(by="page", window=st.tumbling("1m"), n=st.count(), name="hits")
    >>> print(explain(st.Query("hits", hits.to(st.memory_sink())).plan()))
    query hits
    <BLANKLINE>
    step    kind       input   what it does
    clicks  source             memory, 0 rows → page:str ts:time
    hits    aggregate  clicks  tumbling 1m by page: n=count()
    sink    sink       hits    memory
    <BLANKLINE>
    subquery clicks  stateless                clicks
    subquery hits    256 buckets, hash(page)  hits → sink
    <BLANKLINE>
    exchange       routing     combine  order
    clicks → hits  hash(page)  yes      any
    """
    parts = [[f"query {plan.graph.name}"], columns(_steps(plan), width=width)]
    if plan.subqueries:
        lines = [_subquery(plan, s) for s in plan.subqueries if not s.merges]
        parts.append(columns(lines, width=width))
    if plan.exchanges:
        parts.append(
            columns([("exchange", "routing", "combine", "order"), *(_exchange(plan, e) for e in plan.exchanges)])
        )
    return "\n\n".join("\n".join(lines) for lines in parts)


def _steps(plan: Plan) -> list[tuple[str, str, str, str]]:
    rows = [("step", "kind", "input", "what it does")]
    for name, step in plan.graph.steps.items():
        inputs = ", ".join(_output(plan.graph.name_of(s.step), s.port) for s in step.inputs)
        rows.append((name, step.kind, inputs, step.describe()))
    return rows


def _subquery(plan: Plan, subquery: Subquery) -> tuple[str, str, str]:
    if subquery.head is None:
        kind = "stateless"
    elif subquery.buckets is None:
        kind = "stateful"
    else:
        kind = f"{subquery.buckets} bucket{'' if subquery.buckets == 1 else 's'}, {_routing(plan, subquery)}"
    merge = plan.merge_of(subquery)
    if merge is not None and merge.buckets is not None:
        kind += f"; merged: {_routing(plan, merge)}"
    return f"subquery {subquery.name}", kind, _flow(plan, merge or subquery)


def _routing(plan: Plan, subquery: Subquery) -> str:
    return " and ".join(dict.fromkeys(str(e.routing) for e in plan.exchanges if e.target == subquery.name))


def _flow(plan: Plan, subquery: Subquery) -> str:
    """Return `a → b, c`: an arrow where a step takes the output of the one before it, a comma where it does not."""
    text, before = "", None
    for step in plan.graph.steps:
        if step in subquery.steps:
            inputs = [plan.graph.name_of(s.step) for s in plan.step(step).inputs]
            text += step if before is None else f" → {step}" if before in inputs else f", {step}"
            before = step
    return text


def _exchange(plan: Plan, exchange: Exchange) -> tuple[str, str, str, str]:
    target = plan.target(exchange)
    sides = f" ({'left' if exchange.side == 0 else 'right'})" if len(target.inputs) == 2 else ""
    step = _output(exchange.step, exchange.port)
    origin = step if step == exchange.origin else f"{exchange.origin}: {step}"
    return (
        f"{origin} → {exchange.target}{sides}",
        "?" if exchange.routing is None else str(exchange.routing),
        "yes" if plan.combines(exchange) else "no",
        "total" if exchange.ordered else "any",
    )


def _output(step: str, port: str) -> str:
    """Return the name of an output: the step, followed by the port unless that is the main one."""
    return step if port == steps.OUT else f"{step}.{port}"
