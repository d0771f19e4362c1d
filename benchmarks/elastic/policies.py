"""All policies on all traces and topologies, in the simulator: what they cost over the optimum, how often they change, how long rows are late.

The policies were written with seed 0 in view; here other seeds count. Left out: what the simulator does not model (see docs/policies.md).
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from benchmarks.measure import result, say
from springtide.elastic.forecast import Seasonal
from springtide.elastic.policies.bottleneck import Bottleneck
from springtide.elastic.policies.ds2 import DS2
from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.learned import Learned
from springtide.elastic.policies.policy import Policy
from springtide.elastic.policies.predictive import Predictive
from springtide.elastic.policies.threshold import Threshold
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import cluster
from springtide.elastic.simulator.topologies import TOPOLOGIES
from springtide.elastic.simulator.traces import SHAPES, trace
from springtide.elastic.simulator.verdict import BOUND, Verdict, judge

INSTANCES = 20
STARTUP = 30.0
SEEDS = {"day": (1,)}
"""Of each trace; of the others three."""
POLICIES: Mapping[str, Policy] = {
    "threshold": Threshold(),
    "bottleneck": Bottleneck(),
    "ds2": DS2(),
    "autoscale": Predictive(),
    "foresight": Learned(Foresight()),
}
BEST = "foresight"


def main() -> None:
    found: dict[tuple[str, str], list[Verdict]] = {}
    for name in SHAPES:
        policies = dict(POLICIES)
        if name == "day" and importlib.util.find_spec("statsmodels") is not None:
            policies["seasonal"] = Learned(Foresight(forecast=Seasonal(3600)))
        for policy, chosen in policies.items():
            found[name, policy] = _runs(name, chosen)
            say(f"{name:<7} {policy:<10} {_line(found[name, policy])}")
    best = {name: found[name, BEST] for name in SHAPES}
    all_of = {p: [v for name in SHAPES for v in found[name, p]] for p in POLICIES}
    changes = {p: sum(v.reconfigurations for v in verdicts) for p, verdicts in all_of.items()}
    late = {p: sum(v.late for v in verdicts) for p, verdicts in all_of.items()}
    result(
        "policies",
        excess_pct=fmean(v.excess_pct for v in all_of[BEST]),
        # By trace, then averaged: or the day, seventy times as long as others, would be all that counts.
        reconf_ratio=fmean(_changes(verdicts) / _changes(found[name, "ds2"]) for name, verdicts in best.items()),
        reconf_ratio_total=changes[BEST] / changes["ds2"],
        late_ratio=late[BEST] / late["threshold"] if late["threshold"] else None,
        policy=BEST,
        compared={p: _summary(verdicts) for p, verdicts in all_of.items()},
        by_trace={name: {p: _summary(v) for (n, p), v in found.items() if n == name} for name in SHAPES},
        instances_at_peak=INSTANCES,
        startup_s=STARTUP,
        late_bound_s=BOUND,
        topologies=sorted(TOPOLOGIES),
    )


def _runs(name: str, policy: Policy) -> list[Verdict]:
    found = []
    for model in TOPOLOGIES.values():
        for seed in SEEDS.get(name, (1, 2, 3)):
            load = trace(name, model.rate(INSTANCES), seed)
            paced = model.paced(max(1.0, load.seconds / 10_000), load.peak)
            found.append(judge(cluster.run(paced, load, Elastic(policy=policy), seed=seed)))
    return found


def _changes(verdicts: Sequence[Verdict]) -> int:
    return sum(v.reconfigurations for v in verdicts)


def _summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Average over runs what is a share, and add up the rest."""
    figures = {key: [asdict(v)[key] for v in verdicts] for key in ("off_pct", "overshoot_pct", "settling")}
    return {
        "excess_pct": round(fmean(v.excess_pct for v in verdicts), 1),
        "reconfigurations": _changes(verdicts),
        "late_s": round(sum(v.late for v in verdicts)),
        "congested_s": round(sum(v.congested for v in verdicts)),
        **{key: round(fmean(values), 1) for key, values in figures.items()},
        "runs": len(verdicts),
    }


def _line(verdicts: Sequence[Verdict]) -> str:
    found = _summary(verdicts)
    return f"excess {found['excess_pct']:6.1f} %, {found['reconfigurations']:5} changes, late {found['late_s']:6} s"
