"""`springtide run`: a query on Spark, with a view of it."""

from __future__ import annotations

from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from springtide.cli.elasticity import POLICIES, parse_elastic
from springtide.cli.errors import CommandError
from springtide.cli.formatting import count, rate, seconds
from springtide.cli.launch import LOOPBACK, RunEnd, RunOptions, launch, places
from springtide.cli.load import elastic_in, file_of, load_query, module_of
from springtide.cli.reloading import QueryFile
from springtide.cli.sessions import MASTER, parse_session
from springtide.cli.tables import table_of
from springtide.compiler.tables import columns
from springtide.elastic.protocols import ProtocolChoice as Protocol
from springtide.elastic.settings import Elastic
from springtide.query.plurals import plural
from springtide.query.steps import Sink
from springtide.runtime.durability import EPOCH, RETAIN, Durability
from springtide.runtime.replicas.settings import Replicated
from springtide.runtime.standby import AFTER, Standby
from springtide.sinks.memory import MemorySink

_SHOWN = 5
"""Rows of a sink that are shown at the end."""

_SPARK, _ELASTIC, _METRICS, _DURABILITY, _STANDBY = "Spark", "Elasticity", "Metrics", "Durability", "Standby"
_REPLICAS = "Replicas"


def run(
    file: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file that defines a query.")],
    master: Annotated[
        str | None,
        typer.Option(
            help="Where Spark runs: local[N,4], spark://…, yarn, k8s://….", show_default=MASTER, rich_help_panel=_SPARK
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", rich_help_panel=_SPARK, help="A setting of Spark. Repeatable."),
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP:NAME:VERSION,…",
            rich_help_panel=_SPARK,
            help="Jars that Spark fetches, by their names in Maven.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION|module:function",
            rich_help_panel=_SPARK,
            help="Run on the Spark session that this function returns, instead of a new one.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR|URL", help="Where state is kept; a later run continues from it.")
    ] = None,
    instances: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|STEP=N", help="Instances of every subquery, or of the subquery of one step. Repeatable."
        ),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|now", help="The shortest time between two epochs; now: process what is there, and end."
        ),
    ] = None,
    rows_per_epoch: Annotated[
        int | None, typer.Option(min=1, help="Read at most this many rows of an input in one epoch.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines instead of the live view.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Show the run in the browser too, as springtide ui does.")] = False,
    elastic: Annotated[
        bool, typer.Option("--elastic", rich_help_panel=_ELASTIC, help="Let instances and buckets follow the load.")
    ] = False,
    least: Annotated[
        int | None, typer.Option("--min", min=1, rich_help_panel=_ELASTIC, help="The fewest instances of a subquery.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, rich_help_panel=_ELASTIC, help="The most instances of a subquery.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="|".join([*POLICIES, "module:Class"]),
            rich_help_panel=_ELASTIC,
            help="The policy that decides; threshold by default.",
        ),
    ] = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option(rich_help_panel=_ELASTIC, help="How state goes to its new owner; virtual by default."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_535,
            rich_help_panel=_METRICS,
            help="Serve metrics to Prometheus on this port.",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(metavar="ADDRESS", rich_help_panel=_METRICS, help="The address to listen on.")
    ] = LOOPBACK,
    durability: Annotated[
        str,
        typer.Option(
            metavar="epoch|TIME|never",
            rich_help_panel=_DURABILITY,
            help="Make state durable with every epoch, or in the background at this interval.",
        ),
    ] = EPOCH,
    backup: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", rich_help_panel=_DURABILITY, help="Keep a copy of the checkpoint there."),
    ] = None,
    retain: Annotated[
        int, typer.Option(metavar="N", min=1, rich_help_panel=_DURABILITY, help="Keep the last N checkpoints.")
    ] = RETAIN,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            rich_help_panel=_STANDBY,
            help="Wait while another run of the query is at work, and take over when it is gone.",
        ),
    ] = False,
    after: Annotated[
        str,
        typer.Option(
            metavar="TIME", rich_help_panel=_STANDBY, help="Presume a run dead after this long without a sign of life."
        ),
    ] = AFTER,
    lease: Annotated[
        str | None,
        typer.Option(
            metavar="zk://HOST:PORT/PATH",
            rich_help_panel=_STANDBY,
            help="Let ZooKeeper notice instead. Implies --standby.",
        ),
    ] = None,
    replica_of: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            rich_help_panel=_REPLICAS,
            help="Run beside others, each with a checkpoint of its own, that share this group; the first to finish an epoch publishes it.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", rich_help_panel=_REPLICAS, help="What this replica is called."),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Replace the running query when FILE changes and still makes sense.")
    ] = False,
    history: Annotated[
        bool,
        typer.Option(
            "--history",
            help="Let steps that are new in FILE begin with the history of their sources, which are read again.",
        ),
    ] = False,
    savepoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL", rich_help_panel=_DURABILITY, help="Start a new checkpoint from this savepoint."
        ),
    ] = None,
) -> None:
    """Run a query on Spark and show how it is doing.

    It ends with its input, with Ctrl-C, or with [bold]springtide stop[/bold]. Without --checkpoint it starts from the beginning, in a temporary folder.
    """
    query = load_query(file)
    console = Console(highlight=False)
    folder = file_of(file).parent

    def elasticity() -> Elastic | None:
        return parse_elastic(elastic, least, most, policy, protocol, folder=folder, base=elastic_in(file))

    settings = elasticity()
    metrics = None if metrics_port is None else (metrics_host, metrics_port)
    durable = Durability(durability, backup, retain)
    module = module_of(file)
    spark = parse_session(master, conf or (), packages, session, module=module, folder=folder)
    standing = Standby(after, lease) if standby or lease is not None else None
    if standing is not None and checkpoint is None:
        raise CommandError(
            "--standby needs --checkpoint, which two runs share; give a folder or an address that both can see"
        )
    replica = _replica(replica_of, name, checkpoint)
    options = RunOptions(
        session=spark,
        checkpoint=checkpoint,
        instances=instances or (),
        trigger=trigger,
        rows_per_epoch=rows_per_epoch,
        plain=plain,
        elastic=settings,
        metrics=metrics,
        durability=durable,
        savepoint=savepoint,
        ui=ui,
        standby=standing,
        replica=replica,
        file=QueryFile(file, policy, elasticity, history=history),
        reload=reload,
    )
    finished = launch(query, options, console, module=module)
    summary(finished, console)
    for sink in finished.query.of_kind(Sink).values():
        if isinstance(sink.connector, MemorySink):  # it is gone when we are
            last_rows(sink.connector.rows(), console)


def _replica(group: str | None, name: str | None, checkpoint: str | None) -> Replicated | None:
    """Understand what makes the run a replica."""
    if group is None and name is None:
        return None
    if group is None or name is None or checkpoint is None:
        raise CommandError(
            "a replica needs --replica-of (what all of them share), --as (its name) and --checkpoint (a place of its own)"
        )
    return Replicated(group, name)


def last_rows(rows: pl.DataFrame, console: Console) -> None:
    """Show the last rows of an output."""
    if rows.height:
        console.print(f"\nthe last of {plural(rows.height, 'row')} out", style="bold")
        told = rows.drop("ts") if "window_end" in rows.columns and "ts" in rows.columns else rows  # ts says the same
        for text in table_of(told.tail(_SHOWN)):
            console.print(f"  {text}", markup=False, soft_wrap=True)


def summary(finished: RunEnd, console: Console) -> None:
    """Say how a run went."""
    query, progress, time = finished.query, finished.progress, finished.seconds
    how = "has come to the end of its input" if finished.ended else "was stopped; the next run continues from here"
    console.print(f"[bold]{query.name}[/bold] {how}", soft_wrap=True)
    cells = [
        ("epochs", f"{count(progress.epochs)} in {seconds(time)}, median {seconds(progress.median)}"),
        ("rows in", f"{count(progress.rows_in)}, {rate(progress.rows_in / time)} over all"),
        ("rows out", count(progress.rows_out)),
        ("late", count(progress.late)),
        ("rejected", count(progress.rejected)),
        *places(query, finished.checkpoint),
    ]
    for text in columns(cells):
        console.print(f"  {text}", markup=False, soft_wrap=True)
