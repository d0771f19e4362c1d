"""`springtide simulate`: policies against a model of a query on a cluster, under a made-up or a measured load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from springtide.cli.elasticity import POLICIES, parse_elastic
from springtide.cli.errors import CommandError
from springtide.cli.formatting import count, seconds
from springtide.cli.load import load_query
from springtide.cli.sample import read_samples
from springtide.cli.show import show
from springtide.compiler.instances import Observation, costs
from springtide.compiler.tables import columns
from springtide.elastic.decisions import decisions_of
from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.learned import Learned
from springtide.elastic.seasons import Seasonal
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import calibration, cluster, picture, traces
from springtide.elastic.simulator.cluster import SimulatedRun
from springtide.elastic.simulator.model import Model, ModelStep, zipf
from springtide.elastic.simulator.score import BOUND, Score, score_of
from springtide.elastic.simulator.topologies import TOPOLOGIES
from springtide.elastic.simulator.traces import SHAPES, Trace
from springtide.elastic.snapshot import Snapshot
from springtide.query.errors import nearest
from springtide.state.history import History

EPOCHS = 10_000
"""The most epochs that are simulated: over a long time they are longer."""
SEASONAL = "seasonal"


def simulate(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[FILE[:NAME]|TOPOLOGY]", help=f"A query's file, or {', '.join(TOPOLOGIES)}."),
    ] = None,
    load: Annotated[
        str | None, typer.Option(metavar="TRACE", help=f"{', '.join(SHAPES)}, or a CSV file with time,rate.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"{', '.join(POLICIES)}, module:Class.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Compare all policies.")] = False,
    run: Annotated[
        Path | None,
        typer.Option("--from", metavar="CKPT", help="Take costs, and the load unless --load is given, from a run."),
    ] = None,
    sample: Annotated[
        list[str] | None,
        typer.Option(metavar="[SOURCE=]PATH", help="Sample rows to measure the costs of a query with."),
    ] = None,
    instances: Annotated[int, typer.Option(min=1, help="How many instances the load needs at its peak.")] = 20,
    startup: Annotated[float | None, typer.Option(min=0, help="Seconds until new instances are ready.")] = None,
    skew: Annotated[float, typer.Option(min=0, help="Zipf exponent of the keys; 0 is none.")] = 0.0,
    failures: Annotated[float, typer.Option(min=0, help="Failures of an instance per hour.")] = 0.0,
    season: Annotated[float | None, typer.Option(min=1, help="Seconds after which the load repeats itself.")] = None,
    bound: Annotated[float, typer.Option(min=0, help="Seconds after which a row is late.")] = BOUND,
    seed: Annotated[int, typer.Option(help="The seed for everything that is random.")] = 0,
    decisions: Annotated[bool, typer.Option("--decisions", help="Show each decision, and why.")] = False,
    file: Annotated[Path | None, typer.Option("--picture", metavar="FILE", help="Draw it: PNG, SVG or PDF.")] = None,
) -> None:
    """Try policies on a model of a query.

    The same manager and the same policies as in a running query, against a model of the cluster: a day in seconds.
    """
    case = _case(what, load, run, sample, instances, seed)
    model = case.model if startup is None else replace(case.model, startup=startup)
    model = replace(_skewed(model, skew, seed), failures=failures)
    if file is not None:
        picture.check()
    wanted = _wanted(policy or [], compare, season)
    runs = {
        name: cluster.run(model, case.trace, elastic, seed=seed, degrees=case.degrees)
        for name, elastic in wanted.items()
    }
    show("\n".join([_title(case, model), "", *_table({name: score_of(r, bound) for name, r in runs.items()}, bound)]))
    if case.snapshots:
        typer.echo("\n" + "\n".join(_agreement(runs, case.snapshots)))
    if decisions:
        for name, found in runs.items():
            typer.echo(f"\n{name}:\n" + "\n".join(f"{seconds(i.time):>8}  {i}" for i in found.done))
    if file is not None:
        picture.draw(runs, file, bound)
        typer.echo(f"\npicture: {file}")


@dataclass(frozen=True)
class _Case:
    name: str
    model: Model
    trace: Trace
    degrees: dict[str, int] | None = None
    snapshots: tuple[Snapshot, ...] = ()
    """The snapshots of the run that the load is from."""


def _case(
    what: str | None, load: str | None, run: Path | None, sample: list[str] | None, instances: int, seed: int
) -> _Case:
    """Put a model and a load together."""
    snapshots: tuple[Snapshot, ...] = ()
    if run is not None:
        past = History(run)
        snapshots = tuple(Snapshot.from_json(record) for record in past.read("snapshots"))
        try:
            model = calibration.calibrated(snapshots, decisions_of(past.read("decisions")))
        except ValueError as error:
            raise CommandError(f"{run} has no history to go by: {error}") from None
        name = run.name
        if load is None:
            trace = calibration.load_of(snapshots)
            return _Case(name, model, trace, calibration.first_degrees(snapshots), snapshots)
    elif what is None:
        raise CommandError(f"name what to simulate: a query's file, {', '.join(TOPOLOGIES)}, or --from a checkpoint")
    else:
        name = what
        model = TOPOLOGIES[what].widened(instances) if what in TOPOLOGIES else _sampled(what, sample or [])
    if load is None:
        raise CommandError(f"give --load: {', '.join(SHAPES)}, or a CSV file with time,rate")
    trace = _trace(load, model, instances, seed)
    pace = model.pace if run is not None else max(1.0, trace.seconds / EPOCHS)
    return _Case(name, model.paced(pace, trace.peak), trace)


def _trace(load: str, model: Model, instances: int, seed: int) -> Trace:
    if load in SHAPES:
        try:
            return traces.trace(load, model.rate(instances), seed)
        except ValueError as error:
            raise CommandError(f"--instances {instances} is too much for the query: {error}") from None
    path = Path(load)
    if not path.is_file():
        raise CommandError(f"there is no trace {load!r}; {nearest(load, SHAPES)}, or give a CSV file with time,rate")
    try:
        return traces.read(path)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _sampled(file: str, sample: list[str]) -> Model:
    """Measure what a row costs in each subquery with the sequential reference: it is slow, but the ratios are right (SC-8)."""
    if not file.partition(":")[0].endswith(".py"):
        raise CommandError(f"there is no topology {file!r}; {nearest(file, TOPOLOGIES)}, or give a Python file")
    if not sample:
        raise CommandError("give --sample, rows to measure the costs with, or --from, a checkpoint of the query")
    query = load_query(file)
    plan = query.plan()
    seen: list[Observation] = []
    query.run_reference(read_samples(query, sample, 1_000), observe=lambda *step: seen.append(Observation(*step)))
    measured = costs(plan, seen)
    read = sum(measured[s.name].rate for s in plan.subqueries if s.sources)
    steps = {}
    for subquery in plan.subqueries:
        upstream = tuple(dict.fromkeys(e.origin for e in plan.exchanges if e.target == subquery.name))
        above = sum(measured[up].rate for up in upstream) if upstream else read
        cost = measured[subquery.name]
        takes = cost.rate / above if above else 1.0
        steps[subquery.name] = ModelStep(cost.seconds, upstream, takes=takes, buckets=subquery.buckets)
    return Model(steps)


def _skewed(model: Model, exponent: float, seed: int) -> Model:
    if not exponent:
        return model
    steps = {
        name: replace(step, weights=zipf(step.buckets, exponent, seed)) if step.buckets else step
        for name, step in model.steps.items()
    }
    return replace(model, steps=steps)


def _wanted(names: list[str], compare: bool, season: float | None) -> dict[str, Elastic]:
    chosen = [*names, *POLICIES] if compare else names or ["foresight"]
    found = {name: parse_elastic(True, policy=name, folder=Path()) or Elastic() for name in chosen}
    if season is not None:
        found[SEASONAL] = Elastic(policy=Learned(Foresight(forecast=Seasonal(season))))
    return found


def _title(case: _Case, model: Model) -> str:
    return (
        f"{case.name} under {case.trace.name}: {seconds(case.trace.seconds)}, up to {count(case.trace.peak)} rows/s, "
        f"new instances after {seconds(model.startup)}"
    )


def _table(scores: dict[str, Score], bound: float) -> list[str]:
    head = ["policy", "changes", "off", "settling", "overshoot", "congested", f"late > {bound:g} s", "late rows"]
    rows = [[*head, "instance-hours", "over the optimum"]]
    for name, v in scores.items():
        cells = [f"{v.reconfigurations:,}", f"{v.off_pct:.1f} %", seconds(v.settling), f"{v.overshoot_pct:.0f} %"]
        times = [seconds(v.congested), seconds(v.late), count(v.late_rows)]
        rows.append([name, *cells, *times, f"{v.hours:,.2f}", f"{v.excess_pct:+.1f} %"])
    least = next(iter(scores.values())).least_hours
    rows.append(["optimum in hindsight", *[""] * 7, f"{least:,.2f}", ""])
    return columns(rows, right=range(1, len(rows[0])))


def _agreement(runs: dict[str, SimulatedRun], snapshots: tuple[Snapshot, ...]) -> list[str]:
    lines = ["Instances of the model and of the run, if this was its policy:"]
    for name, run in runs.items():
        lines.append(f"  {name}: degree_error_pct {calibration.degree_error_pct(run, snapshots):.1f}")
    return lines
