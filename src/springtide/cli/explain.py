"""`springtide explain`: what a query will run as."""

from __future__ import annotations

from typing import Annotated

import typer

from springtide.cli.load import load_query
from springtide.cli.show import show, width
from springtide.compiler.cost import cost_text
from springtide.compiler.explain import explain as explain_text
from springtide.compiler.mermaid import mermaid as mermaid_text
from springtide.compiler.plan import BUCKETS
from springtide.compiler.scalability import Costs, scalability_text

_COST, _MODEL = "With --cost", "With --scalability (times in units of d^I)"


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file that defines a query.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Compare three ways to parallelise the query.")] = False,
    scalability: Annotated[
        bool, typer.Option("--scalability", help="Model how far one stateful operator scales.")
    ] = False,
    buckets: Annotated[int, typer.Option(help="Buckets per stateful subquery.")] = BUCKETS,
    nodes: Annotated[int, typer.Option(rich_help_panel=_COST, help="Nodes of the cluster.")] = 16,
    alpha: Annotated[float, typer.Option(rich_help_panel=_COST, help="Weight of a channel, 0 to 1.")] = 0.1,
    beta: Annotated[float, typer.Option(rich_help_panel=_COST, help="Weight of a hop, 0 to 1.")] = 0.5,
    rho: Annotated[float, typer.Option(rich_help_panel=_COST, help="Input tuples per second.")] = 100_000,
    processing: Annotated[
        float, typer.Option("--processing-time", rich_help_panel=_MODEL, help="d^P: one processing thread.")
    ] = 16,
    output: Annotated[float, typer.Option("--output-time", rich_help_panel=_MODEL, help="d^O: the output thread.")] = 1,
    route: Annotated[float, typer.Option(rich_help_panel=_MODEL, help="P_SN routing: ×n at the input.")] = 0.1,
    share: Annotated[float, typer.Option(rich_help_panel=_MODEL, help="V_SN sharing: ×n at the input.")] = 0.01,
    merge_pure: Annotated[
        float, typer.Option(rich_help_panel=_MODEL, help="P_SN merging: ×n·ln n at the output.")
    ] = 0.1,
    merge_virtual: Annotated[
        float, typer.Option(rich_help_panel=_MODEL, help="V_SN merging: ×n·ln n at the output.")
    ] = 0.01,
) -> None:
    """Show what a query will run as.

    Its steps, its subqueries, and how tuples go from one to the next.
    """
    query = load_query(file)
    plan = query.plan(buckets=buckets)
    if mermaid:
        typer.echo(mermaid_text(plan))
        return
    parts = []
    if cost:
        parts.append(cost_text(query, nodes=nodes, alpha=alpha, beta=beta, rate=rho))
    if scalability:
        parts.append(scalability_text(Costs(processing, output, route, share, merge_pure, merge_virtual)))
    show("\n\n".join(parts or [explain_text(plan, width=width())]))
