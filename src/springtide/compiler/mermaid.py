"""A plan as a Mermaid flowchart: one subgraph per subquery, thick arrows for exchanges."""

from __future__ import annotations

from springtide.compiler.plan import Exchange, Plan, Subquery
from springtide.query import steps

_LONGEST = 60


def mermaid(plan: Plan) -> str:
    """Return a plan as a flowchart that GitHub, GitLab and mermaid.live show as a picture.

    >>> clicks = st.source("clicks", st.memory(schema={"page": pl.String, "ts": st.TIME}), ts="ts")
    >>> print(mermaid(st.Query("copy", clicks.to(st.memory_sink())).plan()))
    flowchart LR
      subgraph q0["clicks, stateless"]
        q0s0[("<b>clicks</b><br/>memory, 0 rows → page:str ts:time")]
        q0s1[["<b>sink</b><br/>memory"]]
      end
      q0s0 --> q0s1
    """
    ids = {
        (subquery.name, step): f"q{i}s{j}"
        for i, subquery in enumerate(plan.subqueries)
        for j, step in enumerate(subquery.steps)
    }
    lines = ["flowchart LR"]
    for i, subquery in enumerate(plan.subqueries):
        lines.append(f"  subgraph q{i}[{_quoted(title_of(subquery))}]")
        for name in subquery.steps:
            merges = subquery.merges and name == subquery.head
            lines.append(f"    {ids[subquery.name, name]}{_shape(plan, name, 'merge of rankings' if merges else None)}")
        lines.append("  end")
    for subquery in plan.subqueries:
        for edge in plan.graph.edges:
            if edge.origin in subquery.steps and edge.target in subquery.steps and edge.target != subquery.head:
                port = "" if edge.port == steps.OUT else f"|{_quoted(edge.port)}|"
                lines.append(f"  {ids[subquery.name, edge.origin]} -->{port} {ids[subquery.name, edge.target]}")
    for exchange in plan.exchanges:
        origin, target = (
            ids[exchange.origin, exchange.step],
            ids[exchange.target, plan.subquery(exchange.target).head or ""],
        )
        lines.append(f"  {origin} ==>|{_quoted(label_of(plan, exchange))}| {target}")
    return "\n".join(lines)


def title_of(subquery: Subquery) -> str:
    """Return what a subquery is called and how many buckets it has."""
    if subquery.head is None:
        return f"{subquery.name}, stateless"
    return f"{subquery.name}, {subquery.buckets} bucket{'' if subquery.buckets == 1 else 's'}"


def _shape(plan: Plan, name: str, text: str | None) -> str:
    step = plan.step(name)
    text = step.describe() if text is None else text
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    label = f'"<b>{_escaped(name)}</b>{"<br/>" if text else ""}{_escaped(text)}"'
    if isinstance(step, steps.Source):
        return f"[({label})]"
    return f"[[{label}]]" if isinstance(step, steps.Sink) else f"([{label}])" if step.stateful else f"[{label}]"


def label_of(plan: Plan, exchange: Exchange) -> str:
    """Return what goes over an exchange, and by what rule."""
    port = [exchange.port] if exchange.port != steps.OUT else []
    side = [("left", "right")[exchange.side]] if len(plan.target(exchange).inputs) == 2 else []
    how = ["combined"] * plan.combines(exchange) + ["in order"] * exchange.ordered
    return ", ".join([*port, *side, str(exchange.routing), *how])


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Return the text with entities for the characters that Mermaid would read as its own syntax, or a browser as HTML."""
    for character, entity in (("#", "#35;"), ("&", "#amp;"), ("<", "#lt;"), (">", "#gt;"), ('"', "#quot;")):
        text = text.replace(character, entity)
    return text
