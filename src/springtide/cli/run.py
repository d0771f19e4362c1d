"""`springtide run`: a query on Spark, with a view of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from springtide.cli.elasticity import POLICIES, parse_elastic
from springtide.cli.figures import count, plural, rate, seconds
from springtide.cli.launch import LOOPBACK, Outcome, Wish, launch, places
from springtide.cli.load import file_of, load_query, module_of
from springtide.cli.tables import table_of
from springtide.compiler.tables import columns
from springtide.elastic.protocols import Wish as Protocol
from springtide.query.steps import Sink
from springtide.runtime.durability import EPOCH, RETAIN, Durability
from springtide.runtime.query import Query
from springtide.sinks.memory import MemorySink

_ELASTIC, _METRICS, _DURABILITY = "Elasticity", "Metrics", "Durability"


def run(
    file: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file that defines a query.")],
    master: Annotated[str, typer.Option(help="Where Spark runs: local[N,4], spark://…, yarn, k8s://….")] = Wish.master,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where state is kept; a later run goes on from it.")
    ] = None,
    instances: Annotated[
        list[str] | None,
        typer.Option(metavar="N|STEP=N", help="Instances of every subquery, or of that of one step. Repeatable."),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(metavar="TIME|now", help="The least time between two epochs; now: what is there, and then end."),
    ] = None,
    rows_per_epoch: Annotated[int | None, typer.Option(min=1, help="Take in at most so many at once.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines, and no live view.")] = False,
    elastic: Annotated[
        bool, typer.Option("--elastic", rich_help_panel=_ELASTIC, help="Let instances and buckets follow the load.")
    ] = False,
    least: Annotated[
        int | None, typer.Option("--min", min=1, rich_help_panel=_ELASTIC, help="Instances of a subquery at least.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, rich_help_panel=_ELASTIC, help="Instances of a subquery at most.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="|".join([*POLICIES, "module:Class"]),
            rich_help_panel=_ELASTIC,
            help="Who decides; threshold if not said.",
        ),
    ] = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option(rich_help_panel=_ELASTIC, help="How state goes to its new owner; virtual if not said."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=1, max=65_535, rich_help_panel=_METRICS, help="Serve figures to Prometheus."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(metavar="ADDRESS", rich_help_panel=_METRICS, help="Where to listen.")
    ] = LOOPBACK,
    durability: Annotated[
        str,
        typer.Option(
            metavar="epoch|TIME|never",
            rich_help_panel=_DURABILITY,
            help="Make state durable with every epoch, or so often in the background.",
        ),
    ] = EPOCH,
    backup: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", rich_help_panel=_DURABILITY, help="Keep a copy of the checkpoint there."),
    ] = None,
    retain: Annotated[
        int, typer.Option(metavar="N", min=1, rich_help_panel=_DURABILITY, help="Keep the last N checkpoints.")
    ] = RETAIN,
    savepoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL", rich_help_panel=_DURABILITY, help="Begin a new checkpoint with this savepoint."
        ),
    ] = None,
) -> None:
    """Run a query on Spark and show how it is doing.

    It ends with its input, with Ctrl-C, or with [bold]springtide stop[/bold]. Without --checkpoint it begins anew in a temporary folder.
    """
    query = load_query(file)
    console = Console(highlight=False)
    settings = parse_elastic(elastic, least, most, policy, protocol, folder=file_of(file).parent)
    metrics = None if metrics_port is None else (metrics_host, metrics_port)
    durable = Durability(durability, backup, retain)
    wish = Wish(
        master, checkpoint, instances or (), trigger, rows_per_epoch, plain, settings, metrics, durable, savepoint
    )
    outcome = launch(query, wish, console, module=module_of(file))
    summary(query, outcome, console)
    for sink in query.of_kind(Sink).values():
        if isinstance(sink.connector, MemorySink):  # it is gone when we are
            last_rows(sink.connector.rows(), console)


def last_rows(rows: pl.DataFrame, console: Console, shown: int = 5) -> None:
    """Show the last rows of an output."""
    if rows.height:
        console.print(f"\nthe last of {plural(rows.height, 'row')} out", style="bold")
        told = rows.drop("ts") if "window_end" in rows.columns and "ts" in rows.columns else rows  # ts says it again
        for text in table_of(told.tail(shown)):
            console.print(f"  {text}", markup=False, soft_wrap=True)


def summary(query: Query, outcome: Outcome, console: Console) -> None:
    """Say how a run went."""
    reading, time = outcome.reading, outcome.seconds
    how = "has come to the end of its input" if outcome.ended else "was stopped; the next run goes on from here"
    console.print(f"[bold]{query.name}[/bold] {how}", soft_wrap=True)
    figures = [
        ("epochs", f"{count(reading.epochs)} in {seconds(time)}, median {seconds(reading.median)}"),
        ("rows in", f"{count(reading.rows_in)}, {rate(reading.rows_in / time)} over all"),
        ("rows out", count(reading.rows_out)),
        ("late", count(reading.late)),
        ("rejected", count(reading.rejected)),
        *places(query, outcome.checkpoint),
    ]
    for text in columns(figures):
        console.print(f"  {text}", markup=False, soft_wrap=True)
