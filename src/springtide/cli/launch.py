"""Starts a query on Spark and follows it to its end, for `run` and `demo`."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from springtide.cli.errors import CommandError
from springtide.cli.interrupts import Interrupts
from springtide.cli.live_view import Event, LiveView
from springtide.cli.plain_view import PlainView
from springtide.cli.progress import Progress, Tracker
from springtide.cli.reloading import FileChanges
from springtide.cli.sessions import SessionOptions
from springtide.cli.spark import start_spark, warm_up
from springtide.cli.ui import Page
from springtide.compiler.plan import Plan
from springtide.elastic.decisions import Decision
from springtide.elastic.settings import Elastic
from springtide.operators import check_runs
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.graph import Graph
from springtide.query.steps import Sink
from springtide.query.types import micros
from springtide.runtime.clocks import SteadyClock
from springtide.runtime.durability import Durability
from springtide.runtime.identity import begin_from, identity
from springtide.runtime.query import Query
from springtide.runtime.replicas.group import ReplicaError
from springtide.runtime.replicas.replica import check_replicable
from springtide.runtime.replicas.settings import Replicated
from springtide.runtime.standby import Standby, StandbyEnded
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.mirror import Mirror
from springtide.state.names import SPARK_LOG

if TYPE_CHECKING:
    from springtide.cli.reloading import QueryFile
    from springtide.runtime.spark.run import Run

AVAILABLE_NOW = "available now"
"""The trigger that processes what is there and then ends."""
LOOPBACK = "127.0.0.1"
_DECISIONS = 100
"""How many of the last decisions are read: no more events than that are kept."""
_LOOK = 0.2
"""Seconds between two looks at a run."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a person wants a query to run: the options of `springtide run`."""

    session: SessionOptions = field(default_factory=SessionOptions)
    checkpoint: str | None = None
    """A folder, or the address of an object store."""
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
    ui: bool = False
    """Whether a page in the browser shows the run too."""
    standby: Standby | None = None
    """Whether, and how, it waits while another run of the query is at work."""
    replica: Replicated | None = None
    """Of which group it is a replica, and by which name."""
    file: QueryFile | None = None
    """What the query was read from."""
    reload: bool = False
    """Whether it takes the form that the file has, whenever that changes."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    query: Graph
    """In the form that it had at the end."""
    progress: Progress
    seconds: float
    """From the start of the query to its end; Spark's own start is not in it."""
    ended: bool
    """Whether it ended with its input, not because somebody stopped it."""
    checkpoint: str


def launch(
    query: Query,
    options: RunOptions,
    console: Console,
    tips: Sequence[tuple[str, str]] = (),
    module: ModuleType | None = None,
) -> RunEnd:
    """Run a query to its end and show how it is doing, and tips; `module` is where its functions and classes are."""
    plan = query.plan()
    instances = parse_instances(plan, options.instances)
    trigger = None if options.trigger is None else _trigger(options.trigger)
    if options.metrics is not None:
        _check_port(*options.metrics)
    root = options.checkpoint or tempfile.mkdtemp(prefix=f"springtide-{query.name}-")
    check_runs(plan)
    if options.replica is not None:
        check_replicable(plan)
    checkpoint = prepare(plan, options, root)
    before = checkpoint.latest()
    page = Page(checkpoint.root) if options.ui else None
    log = checkpoint.root / SPARK_LOG
    plain = options.plain or not console.is_terminal or console.is_dumb_terminal
    if plain:
        console.print(
            f"{query.name}: starting Spark; checkpoint {checkpoint.store.url if checkpoint.remote else root}",
            markup=False,
            soft_wrap=True,
        )
        console.file.flush()
    try:
        with nullcontext() if plain else console.status("starting Spark"):
            spark = start_spark(options.session, f"springtide {query.name}", log, module)
            if options.elastic is not None and str(spark.sparkContext.master).startswith("local"):
                warm_up(spark, min(spark.sparkContext.defaultParallelism, options.elastic.max or sys.maxsize))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    hint = "Ctrl-C stops after the current epoch"
    shown = checkpoint.store.url if checkpoint.remote else root
    pages = [] if page is None else [("page", page.address())]
    told = [*pages, *places(query, shown), *_metrics(options), *tips]
    if plain and pages:
        console.print(f"page: {pages[0][1]}", markup=False, soft_wrap=True)
    view = PlainView(console) if plain else LiveView(console, query.name, told, hint)
    tracker, clock = Tracker(before), SteadyClock()
    started = clock()
    with Interrupts() as interrupts:
        try:
            standby = _told(options.standby, interrupts, console)
            run = query.start(
                spark,
                checkpoint=root,
                instances=instances or None,
                rows_per_epoch=options.rows_per_epoch,
                trigger=trigger,
                elastic=options.elastic,
                metrics_port=options.metrics[1] if options.metrics else None,
                metrics_host=options.metrics[0] if options.metrics else LOOPBACK,
                durability=options.durability,
                standby=standby,
                replicas=options.replica,
                reload=None if options.file is None else options.file.read,
                history=options.file is not None and options.file.history,
            )
            if standby is not None:
                started = clock()
            changes = FileChanges(options.file, run) if options.file is not None and options.reload else None
            _follow(run, view, tracker, interrupts, clock, changes)
            seconds = clock() - started
        except (QueryError, CheckpointError, ReplicaError):
            raise
        except StandbyEnded as error:
            console.print(f"{query.name}: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(130 if interrupts.stop_wanted else 0) from None
        except SpringtideError as error:
            raise CommandError(f"{error}; Spark's log is {log}") from None
        finally:
            spark.stop()
            if page is not None:
                page.stop()
    latest = checkpoint.latest()
    return RunEnd(run.query, tracker.progress(clock()), seconds, latest is not None and latest.ended, shown)


def prepare(plan: Plan, options: RunOptions, root: str) -> Checkpoint:
    """Prepare the checkpoint; report what is wrong with it now, not after Spark's long start."""
    durability = options.durability or Durability()
    checkpoint = durability.checkpoint(root)
    if checkpoint.remote is not None:
        checkpoint.remote.check_writable()
    if options.savepoint is not None and checkpoint.remote is not None:
        begin_from(options.savepoint, plan, checkpoint)
    if (store := checkpoint.remote or durability.store) is not None and options.standby is None:
        Mirror(checkpoint, store).fill(identity(plan))
    if checkpoint.remote is not None:
        return checkpoint
    if options.savepoint is not None:
        begin_from(options.savepoint, plan, checkpoint, durability.store)
    if options.standby is None:
        checkpoint.make(identity(plan))
    return checkpoint


def _told(standby: Standby | None, interrupts: Interrupts, console: Console) -> Standby | None:
    """Show what a run that stands by waits for, and let Ctrl-C end the waiting."""
    if standby is None:
        return None

    def say(what: str) -> None:
        console.print(what, markup=False, soft_wrap=True)
        console.file.flush()

    return replace(standby, told=say, cancelled=lambda: interrupts.stop_wanted)


def _follow(
    run: Run,
    view: LiveView | PlainView,
    tracker: Tracker,
    interrupts: Interrupts,
    clock: SteadyClock,
    changes: FileChanges | None = None,
) -> None:
    events, started = RunEvents(run), clock()

    def look(*, last: bool) -> None:
        tracker.add(run.epochs(), run.last_snapshot)
        now = clock()
        happened, decisions = events.by_now()
        stopping = interrupts.stop_wanted
        view.show(tracker.progress(now), happened, decisions, now - started, stopping=stopping, last=last)

    with view:
        while run.active:
            look(last=False)
            if interrupts.stop_wanted:
                run.stop()
            elif changes is not None:
                changes.look()
            run.wait(_LOOK)
        look(last=True)
    run.wait()


class RunEvents:
    """What happened besides epochs. Decisions are read from the checkpoint, and only when there is something new."""

    def __init__(self, run: Run) -> None:
        """Follow a run."""
        self._run = run
        self._events: list[Event] = []
        self._decisions: list[Decision] = []

    def by_now(self) -> tuple[list[Event], list[Decision]]:
        """Return the events and the last decisions."""
        events = self._run.events()
        if events != self._events or any(d.outcome is None and not d.overtaken for d in self._decisions):
            self._events, self._decisions = events, self._run.decisions(last=_DECISIONS)
        return self._events, self._decisions


def parse_instances(plan: Plan, wanted: Sequence[str]) -> dict[str, int]:
    """Read `n` and `step=n`; return the number of instances for each subquery."""
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


def _metrics(options: RunOptions) -> list[tuple[str, str]]:
    return [("metrics", f"http://{options.metrics[0]}:{options.metrics[1]}/metrics")] if options.metrics else []


def places(query: Graph, root: str) -> list[tuple[str, str]]:
    """Return where everything is."""
    sinks = query.of_kind(Sink)
    outputs = [("output" if len(sinks) == 1 else name, sink.connector.describe()) for name, sink in sinks.items()]
    return [*outputs, ("checkpoint", root)]
