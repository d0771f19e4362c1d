"""The simulator against the live runs: calibrated on the first third of each, how far are its instances from the real ones in the rest?

The runs are those that `autoscale` and `advertising` kept, and those of the diamond and the star, which run here. The load is the one that came; the policy is that of the run, and so are the instances
in the first third: what comes after it is compared. Rows fall on instances by chance, so that it is done with several seeds, and the mean counts. In `local[32]` all
slots are there from the beginning, so new instances have no start-up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from benchmarks.elastic import advertising, autoscale
from benchmarks.elastic.live import Lived, elastic, live, lived, session
from benchmarks.measure import result, say
from springtide.elastic.simulator import calibration, cluster
from springtide.elastic.snapshot import Snapshot

THIRD = 1 / 3
SEEDS = range(10)


def main() -> None:
    here = [autoscale.conf_min("diamond"), autoscale.conf_min("star")]
    there = [autoscale.conf_min("linear"), autoscale.conf_expt("linear", {}), advertising.conf_min()]
    with session() as spark:
        for case in here:
            live(spark, case)
    runs = {case.name: run for case in (*there, advertising.conf_expt(), *here) if (run := lived(case)) is not None}
    missing = [case.name for case in there if case.name not in runs]
    if missing:
        raise SystemExit(f"run the benchmarks autoscale and advertising first: {missing[0]} is not there")
    errors = {name: degree_error_pct(run) for name, run in runs.items()}
    for name, error in errors.items():
        say(f"{name}: {error:.1f} %")
    result(
        "simulator-fidelity",
        degree_error_pct=fmean(errors.values()),
        worst_pct=max(errors.values()),
        by_run={name: round(error, 1) for name, error in errors.items()},
    )


def degree_error_pct(run: Lived) -> float:
    """Calibrate on the first third, go on from there, compare the rest."""
    begin = run.snapshots[0].time
    until = begin + (run.snapshots[-1].time - begin) * THIRD
    early = [s for s in run.snapshots if s.time <= until]
    model = calibration.calibrated(early, [d for d in run.decisions if d.at <= until])
    model, load = replace(model, startup=0.0), calibration.load_of(run.snapshots)
    degrees = calibration.first_degrees(run.snapshots)
    known = known_degrees(run.snapshots, until)
    simulated = [
        cluster.run(model, load, elastic(run.case.policy), seed=seed, degrees=degrees, known=known) for seed in SEEDS
    ]
    return fmean(calibration.degree_error_pct(s, run.snapshots, since=until) for s in simulated)


def known_degrees(snapshots: Sequence[Snapshot], until: float) -> list[tuple[float, Mapping[str, int]]]:
    """Return the instances that the run had up to a time, and since when, relative to its beginning."""
    begin = snapshots[0].time - snapshots[0].period
    return [(s.time - s.seconds - begin, calibration.first_degrees([s])) for s in snapshots if s.time <= until]
