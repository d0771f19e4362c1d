"""All policies on all traces and topologies, in the simulator: what they cost over the optimum, how often they change, how long rows are late.

The policies were written with seed 0 in view, the constant for jumps with seeds 0 and 1; here 1 and 2 count. Left out: what the simulator does not model (see docs/policies.md).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import groupby
from statistics import fmean
from typing import Any

from benchmarks.measure import result, say
from springtide.elastic.forecast import Linear
from springtide.elastic.policies.bottleneck import Bottleneck
from springtide.elastic.policies.ds2 import DS2
from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.learned import Learned
from springtide.elastic.policies.policy import Policy
from springtide.elastic.policies.predictive import Predictive
from springtide.elastic.policies.threshold import Threshold
from springtide.elastic.seasons import Seasonal
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import cluster
from springtide.elastic.simulator.score import BOUND, Score, score_of
from springtide.elastic.simulator.topologies import TOPOLOGIES
from springtide.elastic.simulator.traces import SHAPES, trace

INSTANCES = 20
STARTUP = 30.0
SEEDS = {"day": (1,)}
"""Of each trace; of the others two."""
POLICIES: Mapping[str, Policy] = {
    "threshold": Threshold(),
    "bottleneck": Bottleneck(),
    "ds2": DS2(),
    "autoscale": Predictive(),
    "foresight": Learned(Foresight()),
    "linear": Learned(Foresight(forecast=Linear())),
}
"""The last one forecasts as AUTOSCALE does, and decides like the one before it."""
SEASONS: Mapping[str, Policy] = {"seasonal": Learned(Foresight(forecast=Seasonal(3600)))}
"""For the load that has one."""
BEST = "foresight"

Job = tuple[str, str, str, int]
"""Trace, policy, topology, seed."""


def main() -> None:
    jobs = [
        (name, policy, topology, seed)
        for name in SHAPES
        for policy in (*POLICIES, *(SEASONS if name == "day" else ()))
        for topology in TOPOLOGIES
        for seed in SEEDS.get(name, (1, 2))
    ]
    found: dict[tuple[str, str], list[Score]] = {}
    with ProcessPoolExecutor(2) as pool:
        scores = zip(jobs, pool.map(_score, jobs), strict=True)
        for (name, policy), those in groupby(scores, key=lambda entry: entry[0][:2]):
            found[name, policy] = [score for _, score in those]
            say(f"{name:<7} {policy:<10} {_line(found[name, policy])}")
    best = {name: found[name, BEST] for name in SHAPES}
    all_of = {p: [v for name in SHAPES for v in found[name, p]] for p in POLICIES}
    changes = {p: sum(v.reconfigurations for v in scores) for p, scores in all_of.items()}
    late = {p: sum(v.late for v in scores) for p, scores in all_of.items()}
    result(
        "policies",
        excess_pct=fmean(v.excess_pct for v in all_of[BEST]),
        # By trace, then averaged: or the day, seventy times as long as others, would be all that counts.
        reconf_ratio=fmean(_changes(scores) / _changes(found[name, "ds2"]) for name, scores in best.items()),
        reconf_ratio_total=changes[BEST] / changes["ds2"],
        late_ratio=late[BEST] / late["threshold"] if late["threshold"] else None,
        policy=BEST,
        compared={p: _summary(scores) for p, scores in all_of.items()},
        by_trace={name: {p: _summary(v) for (n, p), v in found.items() if n == name} for name in SHAPES},
        instances_at_peak=INSTANCES,
        startup_s=STARTUP,
        late_bound_s=BOUND,
        topologies=sorted(TOPOLOGIES),
    )


def _score(job: Job) -> Score:
    name, policy, topology, seed = job
    model = TOPOLOGIES[topology]
    load = trace(name, model.rate(INSTANCES), seed)
    paced = model.paced(max(1.0, load.seconds / 10_000), load.peak)
    return score_of(cluster.run(paced, load, Elastic(policy={**POLICIES, **SEASONS}[policy]), seed=seed))


def _changes(scores: Sequence[Score]) -> int:
    return sum(v.reconfigurations for v in scores)


def _summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Average over runs what is a share, and add up the rest."""
    figures = {key: [asdict(v)[key] for v in scores] for key in ("off_pct", "overshoot_pct", "settling")}
    return {
        "excess_pct": round(fmean(v.excess_pct for v in scores), 1),
        "reconfigurations": _changes(scores),
        "late_s": round(sum(v.late for v in scores)),
        "congested_s": round(sum(v.congested for v in scores)),
        **{key: round(fmean(values), 1) for key, values in figures.items()},
        "runs": len(scores),
    }


def _line(scores: Sequence[Score]) -> str:
    found = _summary(scores)
    return f"excess {found['excess_pct']:6.1f} %, {found['reconfigurations']:5} changes, late {found['late_s']:6} s"
