"""Starts a query on Spark and follows it to its end. What `run` and `demo` have in common."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from springtide.cli.errors import CommandError
from springtide.cli.interrupts import Interrupts
from springtide.cli.live import DECISIONS, Event, LiveView
from springtide.cli.plain import PlainView
from springtide.cli.readings import Reading, Tracker
from springtide.cli.spark import start_spark, warm_up
from springtide.compiler.plan import Plan
from springtide.elastic.decisions import Decision
from springtide.elastic.settings import Elastic
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.steps import Sink
from springtide.query.types import micros
from springtide.runtime.clocks import SteadyClock
from springtide.runtime.durability import Durability
from springtide.runtime.heads import check_runs
from springtide.runtime.identity import begin_from, identity
from springtide.runtime.query import Query
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.mirror import Mirror
from springtide.state.stores import Store

if TYPE_CHECKING:
    from springtide.runtime.spark.run import Run

AVAILABLE_NOW = "available now"
"""The trigger that works through what is there and ends."""
LOOPBACK = "127.0.0.1"
_LOOK = 0.2
"""Seconds between two looks at a run."""


@dataclass(frozen=True)
class Wish:
    """How a person wants a query to run."""

    master: str = "local[*,4]"
    checkpoint: Path | None = None
    instances: Sequence[str] = ()
    """`n` for all subqueries, `step=n` for one."""
    trigger: str | None = None
    rows_per_epoch: int | None = None
    plain: bool = False
    elastic: Elastic | None = None
    metrics: tuple[str, int] | None = None
    """Host and port for Prometheus."""
    durability: Durability | None = None
    savepoint: str | None = None
    """What a new checkpoint begins with."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reading: Reading
    seconds: float
    """From the start of the query to its end; Spark's own start is not in it."""
    ended: bool
    """With its input, not because somebody stopped it."""
    checkpoint: Path


def launch(
    query: Query,
    wish: Wish,
    console: Console,
    tips: Sequence[tuple[str, str]] = (),
    module: ModuleType | None = None,
) -> Outcome:
    """Run a query to its end and show how it is doing, and tips; `module` is where its functions and classes are."""
    plan = query.plan()
    instances = parse_instances(plan, wish.instances)
    trigger = None if wish.trigger is None else _trigger(wish.trigger)
    if wish.metrics is not None:
        _check_port(*wish.metrics)
    root = wish.checkpoint or Path(tempfile.mkdtemp(prefix=f"springtide-{query.name}-"))
    check_runs(plan)
    checkpoint = prepare(plan, wish, root)
    before = checkpoint.latest()
    log = checkpoint.root / "logs" / "spark.log"
    plain = wish.plain or not console.is_terminal or console.is_dumb_terminal
    if plain:
        console.print(f"{query.name}: starting Spark; checkpoint {root}", markup=False, soft_wrap=True)
        console.file.flush()
    try:
        with nullcontext() if plain else console.status("starting Spark"):
            spark = start_spark(wish.master, f"springtide {query.name}", log, module)
            if wish.elastic is not None and wish.master.startswith("local"):
                warm_up(spark, min(spark.sparkContext.defaultParallelism, wish.elastic.max or sys.maxsize))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    hint = "Ctrl-C stops after the epoch at work"
    told = [*places(query, root), *_metrics(wish), *tips]
    view = PlainView(console) if plain else LiveView(console, query.name, told, hint)
    tracker, clock = Tracker(before), SteadyClock()
    started = clock()
    with Interrupts() as interrupts:
        try:
            run = query.start(
                spark,
                checkpoint=root,
                instances=instances or None,
                rows_per_epoch=wish.rows_per_epoch,
                trigger=trigger,
                elastic=wish.elastic,
                metrics_port=wish.metrics[1] if wish.metrics else None,
                metrics_host=wish.metrics[0] if wish.metrics else LOOPBACK,
                durability=wish.durability,
            )
            _follow(run, view, tracker, interrupts, clock)
            seconds = clock() - started
        except (QueryError, CheckpointError):
            raise
        except SpringtideError as error:
            raise CommandError(f"{error}; Spark's log is {log}") from None
        finally:
            spark.stop()
    latest = checkpoint.latest()
    return Outcome(tracker.reading(clock()), seconds, latest is not None and latest.ended, root)


def prepare(plan: Plan, wish: Wish, root: Path) -> Checkpoint:
    """Make the checkpoint ready; what is wrong with it is told now, not after Spark's long start."""
    checkpoint = Checkpoint(root)
    if wish.durability is not None and wish.durability.backup is not None:
        Mirror(checkpoint, Store.at(wish.durability.backup)).fill(identity(plan))
    if wish.savepoint is not None:
        begin_from(wish.savepoint, plan, root)
    checkpoint.make(identity(plan))
    return checkpoint


def _follow(run: Run, view: LiveView | PlainView, tracker: Tracker, interrupts: Interrupts, clock: SteadyClock) -> None:
    happened, started = Happened(run), clock()

    def look(*, last: bool) -> None:
        tracker.add(run.epochs(), run.last_snapshot)
        now = clock()
        events, decisions = happened.by_now()
        stopping = interrupts.stop_wanted
        view.show(tracker.reading(now), events, decisions, now - started, stopping=stopping, last=last)

    with view:
        while run.active:
            look(last=False)
            if interrupts.stop_wanted:
                run.stop()
            run.wait(_LOOK)
        look(last=True)
    run.wait()


class Happened:
    """What happened besides epochs. Decisions are read from the checkpoint, and only when there is something new."""

    def __init__(self, run: Run) -> None:
        """Follow a run."""
        self._run = run
        self._events: list[Event] = []
        self._decisions: list[Decision] = []

    def by_now(self) -> tuple[list[Event], list[Decision]]:
        """Give the events and the last decisions."""
        events = self._run.events()
        if events != self._events or any(d.outcome is None and not d.overtaken for d in self._decisions):
            self._events, self._decisions = events, self._run.decisions(last=DECISIONS)
        return self._events, self._decisions


def parse_instances(plan: Plan, wanted: Sequence[str]) -> dict[str, int]:
    """Read `n` and `step=n`; give the wish for each subquery that is meant."""
    found: dict[str, int] = {}
    for text in sorted(wanted, key=lambda text: "=" in text):  # a number for all comes before exceptions
        step, equals, number = text.rpartition("=")
        if not number.strip().isdigit() or int(number) < 1:
            raise CommandError(f"--instances {text!r} is not understood; give a number, or step=number: heavy=4")
        names = [plan.subquery(step).name] if equals else [q.name for q in plan.subqueries]
        found |= dict.fromkeys(names, int(number))
    return found


def _trigger(text: str) -> str:
    if text in ("now", AVAILABLE_NOW):
        return AVAILABLE_NOW
    try:
        length = micros(text)
    except ValueError as error:
        raise CommandError(f"--trigger: {error}") from None
    if length < 0:
        raise CommandError(f"--trigger {text} is in the past; give for example 1s")
    return f"{length // 1000} milliseconds"


def _check_port(host: str, port: int) -> None:
    """Try the port now, not after Spark's long start."""
    try:
        socket.create_server((host, port)).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"metrics cannot be served on {host}:{port}: {why}; give another --metrics-port") from None


def _metrics(wish: Wish) -> list[tuple[str, str]]:
    return [("metrics", f"http://{wish.metrics[0]}:{wish.metrics[1]}/metrics")] if wish.metrics else []


def places(query: Query, root: Path) -> list[tuple[str, str]]:
    """Say where everything is."""
    sinks = query.of_kind(Sink)
    outputs = [("output" if len(sinks) == 1 else name, sink.connector.describe()) for name, sink in sinks.items()]
    return [*outputs, ("checkpoint", str(root))]
