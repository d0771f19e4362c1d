"""AUTOSCALE's advertising topology (fig. 11) live on Spark, 3-step: a filter lets a third of the events through, so that the load of the ends grows less than the input.

The overhead is what the predictive policy used over what was actually needed, as in the paper: the instances that the work of each epoch filled, whole ones. `over_the_optimum_pct` is beside
it: over the fewest that somebody would have had who knew the load, by what rows and epochs cost in the run. ConfMin begins with one instance of everything, ConfExpt with what somebody gives who looks at how long operators take and not at
the filter.
"""

import math

from benchmarks.elastic.live import FORESIGHT, SLOTS, Case, Lived, live, lived, session
from benchmarks.measure import result
from springtide.elastic.simulator import calibration, optimum

PEAK = 1000.0
ROUNDING = 1e-9
EXPERT = {"events": 1, "join": 1, "ip-processor": 6, "campaign-processor": 6}
"""Three or four of each would do at the peak, with the third of the events that is left."""


def main(*confs: str) -> None:
    """Run both configurations, or only the one that is named, `min` or `expt`; the other is taken from the last time."""
    cases = {"min": conf_min(), "expt": conf_expt()}
    with session() as spark:
        for conf in confs or cases:
            live(spark, cases[conf])
    runs = {conf: run for conf, case in cases.items() if (run := lived(case)) is not None}
    figures = {"overhead_pct": overhead_pct(runs["min"]), "over_the_optimum_pct": over_the_optimum_pct(runs["min"])}
    if "expt" in runs:
        seconds = sum(s.period for s in runs["expt"].snapshots)
        saved = 1 - runs["expt"].instance_seconds / (sum(EXPERT.values()) * seconds)
        figures |= {"overhead_expert_pct": overhead_pct(runs["expt"]), "saved_expert_pct": 100 * saved}
    result(
        "advertising",
        **figures,
        congested=any(run.congested for run in runs.values()),
        peak_rows_per_s=PEAK,
        slots=SLOTS,
        runs={run.case.name: run.figures() for run in runs.values()},
    )


def conf_min() -> Case:
    return Case("advertising-3-step", "advertising", "3-step", PEAK, 1, FORESIGHT)


def conf_expt() -> Case:
    return Case("advertising-3-step-expert", "advertising", "3-step", PEAK, EXPERT, FORESIGHT)


def overhead_pct(run: Lived) -> float:
    """Say how many more instances there were than the work filled, over the run."""
    filled = (
        s.period * max(1, math.ceil(own.instances * s.mean_utilisation(name) - ROUNDING))
        for s in run.snapshots
        for name, own in s.subqueries.items()
    )
    return 100 * (run.instance_seconds / sum(filled) - 1)


def over_the_optimum_pct(run: Lived) -> float:
    """Say how many more instances there were than the load needed in hindsight, over the run."""
    model = calibration.calibrated(run.snapshots, run.decisions)
    needed = optimum.needed(model, calibration.load_of(run.snapshots))
    return float(100 * (run.instance_seconds / (needed.sum() * model.pace) - 1))
