"""`springtide plan`: how many instances each subquery needs, from a sample run (SC-8)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console

from springtide.cli.errors import CommandError
from springtide.cli.load import load_query
from springtide.cli.sample import read_samples
from springtide.cli.show import show
from springtide.compiler.instances import UTILISATION, Cost, Observation, costs, instances, needed
from springtide.compiler.tables import columns
from springtide.query.plurals import plural


def plan(
    file: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file that defines a query.")],
    sample: Annotated[
        list[str],
        typer.Option(metavar="[SOURCE=]PATH", help="Parquet, CSV or NDJSON: a file or a folder. One for each source."),
    ],
    available: Annotated[
        int | None, typer.Option("--instances", min=1, help="Instances to share out; by default one per core.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0, help="Rows per second at the sources: propose what that needs.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Read at most this many rows of each sample.")] = 1_000,
) -> None:
    """Propose instances for each subquery from a sample run.

    The sample goes through the query once; instances are shared out by the time that it takes in each subquery.
    """
    query = load_query(file)
    compiled = query.plan()
    samples = read_samples(query, sample, rows)
    seen: list[Observation] = []
    with Console(stderr=True).status("running the sample"):
        result = query.run_reference(samples, observe=lambda *step: seen.append(Observation(*step)))
    for name, frame in result.rejected.items():
        if frame.height == samples[name].height:
            raise CommandError(f"no row of the sample fits {name}: {frame['reason'][0]}")
    measured = costs(compiled, seen, rate)
    if rate is not None and available is None:
        proposal = needed(measured)
        purpose = f"for {rate:,.10g} rows/s at the sources, at most {UTILISATION:.0%} busy"
    else:
        available = available or max(os.cpu_count() or 1, len(measured))
        if available < len(measured):
            raise CommandError(
                f"give at least {plural(len(measured), 'instance')}, one for each subquery, not {available}"
            )
        proposal = instances(measured, available)
        purpose = f"for {plural(available, 'instance')}"
    show("\n".join([f"query {query.name}, {purpose}", "", *_table(measured, proposal, rate)]))
    for name, cost in measured.items():
        if rate is not None and cost.load > proposal[name] * UTILISATION and proposal[name] == cost.most:
            typer.echo(f"\n{name} cannot use more instances: it has {cost.most} bucket{'' if cost.most == 1 else 's'}.")
    took = ", ".join(f"{name} {frame.height:,}" for name, frame in samples.items())
    typer.echo(
        f"\nMeasured on a sample (rows: {took}) with the sequential reference, which is\n"
        "much slower than the engine: the ratios between subqueries are what counts."
    )


def _table(measured: Mapping[str, Cost], proposal: Mapping[str, int], rate: float | None) -> list[str]:
    total = sum(cost.load for cost in measured.values()) or 1.0
    timed = [] if rate is None else ["busy"]
    rows = [["subquery", "tuples in" if rate is None else "tuples/s", "µs per tuple", "load", *timed, "instances"]]
    for name, cost in measured.items():
        busy = [] if rate is None else [f"{cost.load / proposal[name]:.0%}"]
        cells = [f"{cost.rate:,.0f}", f"{cost.seconds * 1e6:,.1f}", f"{cost.load / total:.1%}"]
        rows.append([name, *cells, *busy, f"{proposal[name]:,}"])
    rows.append(["total", *[""] * (len(rows[0]) - 2), f"{sum(proposal.values()):,}"])
    return columns(rows, right=range(1, len(rows[0])))
