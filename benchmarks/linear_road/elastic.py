"""Linear Road with instances that follow the load (SEEP, figures 6, 9 and 10; SE-10).

live      from one instance of everything, the rate of an expressway up to its highest, in real time on two cores; every row is judged. Figure 6.
          Then the same with as many instances as `--allocations` say from the beginning to the end: "2" of everything, or "cars=2,accounts=2" and one of
          the rest. The best of these is the one with the fewest instances whose 95th percentile is at most half as long again as the shortest
model     the simulator with what a row, an epoch and a change cost in that run, on a cluster with a slot for every instance, where the load is so high that
          twenty instances are just enough: two cores cannot show what a threshold does to twenty instances. Figures 9 and 10
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import springtide as st
from benchmarks.linear_road.judging import Live, expected_of, verdict_of
from benchmarks.linear_road.rating import HIGHEST, SEED, Case
from benchmarks.linear_road.source import Recording
from benchmarks.linear_road.traffic import LOWEST
from benchmarks.measure import DATA, result, say, scratch, session
from benchmarks.pictures import picture, series, thinned
from springtide.charts import COLOURS, INK, PALE
from springtide.elastic.decisions import Decision
from springtide.elastic.policies.policy import Policy
from springtide.elastic.simulator import cluster
from springtide.elastic.simulator.calibration import calibrated
from springtide.elastic.simulator.model import Model
from springtide.elastic.simulator.traces import Trace
from springtide.elastic.snapshot import Snapshot

EXPRESSWAYS = 96
RAMP, FULL = 240, 60
WARM_UP = 20
"""Expressways, and seconds of ramp and full rate, of a run that does not count."""
PARTS = ("traffic", "cars", "tolls", "accounts")
ALLOCATIONS = ("1", "cars=2,accounts=2", "2")
"""By hand, live: from too few to one for each core."""
DELTA = 0.7
NEEDED = 20
"""Instances that are just enough in the model, at the highest rate."""
LENGTH, PLATEAU = 1_200, 300
"""Seconds of the model's ramp, and of the highest rate after it."""
STARTUP = 5.0
"""Seconds until a new instance is there: SEEP has a pool of virtual machines for that."""
Outcome = tuple[list[Snapshot], Sequence[Decision], dict[str, Any]]
"""What a run measured, what was decided, and what was judged."""
THRESHOLDS = tuple(range(10, 91, 10))


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="linear-road-elastic")
    parser.add_argument("--expressways", type=int, default=EXPRESSWAYS)
    parser.add_argument("--ramp", type=int, default=RAMP)
    parser.add_argument("--full", type=int, default=FULL)
    parser.add_argument(
        "--allocations", nargs="*", type=allocation_of, default=[allocation_of(text) for text in ALLOCATIONS]
    )
    given = parser.parse_args(arguments)
    spark = session()
    _live(spark, WARM_UP, WARM_UP, WARM_UP, instances=2)  # whoever comes first must not pay for a cold JVM
    snapshots, decisions, live = _dynamic_live(spark, given.expressways, given.ramp, given.full)
    by_hand = [_fixed_live(spark, given.expressways, given.ramp, given.full, parts) for parts in given.allocations]
    model = replace(calibrated(snapshots, decisions), slots=None, startup=STARTUP, rows_per_epoch=None)
    rate = model.rate(NEEDED)
    climbs = np.linspace(rate * LOWEST / HIGHEST, rate, LENGTH)
    load = Trace("linear road", np.concatenate([climbs, np.full(PLATEAU, rate)]))
    by_threshold = {delta: _dynamic(model, load, st.Bottleneck(delta=delta / 100, k=2)) for delta in THRESHOLDS}
    foresight = _dynamic(model, load, st.Learned(st.Foresight()))
    manual = _manual(model, Trace("full", np.full(PLATEAU, rate)))
    best = _best(manual)
    chosen = by_threshold[round(DELTA * 100)]
    result(
        "linear-road-elastic",
        live=live,
        **_compared(live, by_hand),
        model={
            "expressways": round(rate / HIGHEST),
            "cost_us": {name: round(step.cost * 1e6, 3) for name, step in model.steps.items()},
            "overhead_s": round(model.overhead, 3),
        },
        by_threshold={str(delta): found for delta, found in by_threshold.items()},
        manual={str(number): found for number, found in manual.items()},
        best_manual_instances=best,
        dynamic_instances=chosen["instances"],
        over_manual_pct=100 * (chosen["instances"] / best - 1),
        foresight=foresight,
        foresight_over_manual_pct=100 * (foresight["instances"] / best - 1),
        seep={"over_manual_pct": 25, "dynamic_vms": 25, "manual_vms": 20},
    )


# ── live ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def allocation_of(text: str) -> dict[str, int]:
    """Read how many instances there are to be of each part of the query."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        given = dict.fromkeys(PARTS, int(text)) if "=" not in text else {name: int(n) for name, n in pairs}
        if not given.keys() <= set(PARTS) or min(given.values()) < 1:
            raise ValueError(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no allocation: write "2", or "cars=2,accounts=2"; the parts are {", ".join(PARTS)}'
        ) from None
    return dict.fromkeys(PARTS, 1) | given


def _dynamic_live(spark: Any, expressways: int, ramp: int, full: int) -> Outcome:
    policy = st.Elastic(policy=st.Bottleneck(delta=DELTA, k=2), every=5.0, max=4, balancing=None)
    snapshots, decisions, found = _live(spark, expressways, ramp, full, instances=1, elastic=policy)
    return snapshots, decisions, found | {"changes": [str(d.change) for d in decisions], "drawn": _curves(snapshots)}


def _fixed_live(spark: Any, expressways: int, ramp: int, full: int, parts: Mapping[str, int]) -> dict[str, Any]:
    """Run with the same instances from the beginning to the end."""
    _, _, found = _live(spark, expressways, ramp, full, instances=dict(parts))
    say(f"by hand, {found['instances']}: p95 {found['p95_ms']:.0f} ms, {found['late_answers']} late")
    return found


def _live(spark: Any, expressways: int, ramp: int, full: int, **options: Any) -> Outcome:
    recording = Recording.of(DATA / "linear-road", SEED, highest=HIGHEST, seconds=ramp + full, ramp=ramp)
    with scratch() as folder:
        case = Case(folder, recording, expressways, 0, 0, ramp + full)
        run = case.start(spark, None, **options)
        run.wait()
        snapshots, decisions = run.snapshots(), run.decisions()
        began = run.epochs()[-1].sources["traffic"].position["zero"]
        found = verdict_of(case.out, expected_of(recording, case.end), recording, expressways, Live(0, case.end, began))
    instances = {name: own.instances for name, own in snapshots[-1].subqueries.items()}
    return snapshots, decisions, found | {"expressways": expressways, "instances": instances}


def _compared(live: Mapping[str, Any], by_hand: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Say how many instances more there were in the end than in the best of the allocations by hand."""
    if not by_hand:
        return {}
    best = _best({sum(f["instances"].values()): {"p95_s": f["p95_ms"] / 1000} for f in by_hand})
    return {
        "live_manual": list(by_hand),
        "live_best_manual_instances": best,
        "live_over_manual_pct": 100 * (sum(live["instances"].values()) / best - 1),
    }


def _curves(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Keep what is drawn of a run."""
    return {
        "seconds": thinned(s.time - snapshots[0].time for s in snapshots),
        "came_per_s": thinned(s.rate for s in snapshots),
        "processed_per_s": thinned(s.rows / s.period for s in snapshots),
        "instances": {
            name: thinned(s.subqueries[name].instances for s in snapshots) for name in snapshots[0].subqueries
        },
        "p95_latency_s": thinned(s.latency.p95 if s.latency else None for s in snapshots),
    }


def draw(figures: Mapping[str, Any]) -> None:
    """Draw the live run, and what the simulator says of thresholds."""
    live = figures["live"]
    _draw_live(live["drawn"], live["expressways"])
    manual = {int(number): found for number, found in figures["manual"].items()}
    _draw_thresholds({int(d): found for d, found in figures["by_threshold"].items()}, manual, _best(manual))


def _draw_live(drawn: Mapping[str, Any], expressways: int) -> None:
    title = f"{expressways} expressways, from one instance of everything"
    with picture("linear-road-elastic", (1.2, 1.2, 1), title=title) as axes:
        rates, instances, waits = axes
        times = drawn["seconds"]
        rates.plot(times, [n / 1e3 for n in drawn["came_per_s"]], color=PALE, linewidth=3, label="messages that came")
        rates.plot(times, [n / 1e3 for n in drawn["processed_per_s"]], color=INK, linewidth=1, label="processed")
        bottom = np.zeros(len(times))
        for (name, counts), colour in zip(drawn["instances"].items(), COLOURS, strict=False):
            degrees = np.array(counts, dtype=np.float64)
            instances.fill_between(times, bottom, bottom + degrees, step="post", color=colour, label=name)
            bottom += degrees
        waits.plot(times, series(drawn["p95_latency_s"]), color=COLOURS[0])
        rates.set(ylabel="thousands per second", ylim=(0, None))
        instances.set(ylabel="instances", ylim=(0, None))
        waits.set(ylabel="p95 latency, s", xlabel="seconds", ylim=(0, 5))


# ── model ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _dynamic(model: Model, load: Trace, policy: Policy) -> dict[str, float]:
    settings = st.Elastic(policy=policy, every=5.0, balancing=None)
    found = _figures(cluster.run(model, load, settings, degrees=dict.fromkeys(model.steps, 1), keep=True))
    say(f"{policy}: {found}")
    return found


def _manual(model: Model, load: Trace) -> dict[int, dict[str, float]]:
    """Run fixed allocations: each gives one more instance to what takes the longest, as an expert would."""
    works = model.works(load.peak)
    degrees = dict.fromkeys(model.steps, 1)
    found = {}
    for number in range(len(degrees), NEEDED + 13):
        if number >= NEEDED - 2:
            fixed = st.Elastic(policy=st.Manual(), balancing=None)
            found[number] = _figures(cluster.run(model, load, fixed, degrees=degrees, keep=True))
        slowest = max(degrees, key=lambda name: works[name].time(degrees[name]))
        degrees = degrees | {slowest: degrees[slowest] + 1}
    return found


def _best(manual: Mapping[int, Mapping[str, float]]) -> int:
    """Find the fewest instances with which rows wait hardly longer than with many: with fewer the 95th percentile starts to rise."""
    least = min(found["p95_s"] for found in manual.values())
    return min(number for number, found in manual.items() if found["p95_s"] <= 1.5 * least)


def _figures(run: cluster.SimulatedRun) -> dict[str, float]:
    """Say how many instances there were in the end, and how long rows waited all the time."""
    waits = [(s.latency.p50, s.latency.p95, s.rows) for s in run.snapshots if s.latency]
    weights = np.array([rows for _, _, rows in waits], dtype=np.float64)
    middle, high = (np.array([w[i] for w in waits]) for i in (0, 1))
    return {
        "instances": int(run.degrees[-1]),
        "p50_s": round(_quantile(middle, weights, 0.5), 3),
        "p95_s": round(_quantile(high, weights, 0.95), 3),
        "changes": len(run.done),
    }


def _quantile(values: Any, weights: Any, q: float) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), q * weights.sum())])


def _draw_thresholds(
    by_threshold: Mapping[int, Mapping[str, float]], manual: Mapping[int, Mapping[str, float]], best: int
) -> None:
    with picture("linear-road-threshold", (1, 1), title="the threshold of the bottleneck detector") as (degree, wait):
        deltas = list(by_threshold)
        degree.plot(
            deltas, [f["instances"] for f in by_threshold.values()], color=COLOURS[0], marker="o", label="dynamic"
        )
        degree.axhline(best, color=PALE, linestyle=":", label=f"by hand: {best}")
        for key, colour in (("p50_s", COLOURS[1]), ("p95_s", COLOURS[2])):
            wait.plot(deltas, [f[key] for f in by_threshold.values()], color=colour, marker="o", label=key[:3])
        degree.set(ylabel="instances at the end", ylim=(0, None))
        wait.set(ylabel="latency, s", xlabel="threshold δ, %", yscale="log")
