"""AUTOSCALE's main experiments live on Spark (AS-7): the linear topology, static against predictive.

ConfMin begins with one instance of everything, under the 5-step stream: is there congestion, that is, does the backlog grow at the end? ConfExpt begins with the
expert degree, that which the peak needs, under the 3-step stream: what is saved, of the CPU load that table III gives each instance? Static and predictive run side by side. The predictive policy
is `Learned(Foresight())`; AUTOSCALE's own is in the table of all policies, `policies`. Diamond and star run for `simulator-fidelity`, and everything for `autoscale-all`.
"""

from benchmarks.elastic.live import FORESIGHT, STATIC, Case, Lived, live, lived, session
from benchmarks.measure import result, say
from springtide.elastic.simulator import calibration

PEAK = 1300.0
"""Rows per second; at 4 ms a row it takes eight instances at the end, as in table III."""


def main(*streams: str) -> None:
    """Run both streams, or those that are named, and take the other from the last time."""
    with session() as spark:
        if "5-step" in (streams or ("5-step",)):
            live(spark, conf_min("linear", static=True), conf_min("linear"))
        needed = expert(_kept(conf_min("linear")), PEAK)
        if "3-step" in (streams or ("3-step",)):
            say(f"the expert degree is {needed}")
            live(spark, conf_expt("linear", needed, static=True), conf_expt("linear", needed))
    runs = {
        run.case.name: run
        for static in (True, False)
        for run in (_kept(conf_min("linear", static)), _kept(conf_expt("linear", needed, static)))
    }
    static, predictive = runs["linear-3-step-static"], runs["linear-3-step"]
    result(
        "autoscale",
        congested_static=runs["linear-5-step-static"].congested,
        congested_predictive=runs["linear-5-step"].congested,
        saved_pct=100 * (1 - predictive.used(_cpu_load) / static.used(_cpu_load)),
        saved_instances_pct=100 * (1 - predictive.instance_seconds / static.instance_seconds),
        throughput_ratio=predictive.rows / static.rows,
        expert=needed,
        peak_rows_per_s=PEAK,
        runs={name: run.figures() for name, run in runs.items()},
    )


def _kept(case: Case) -> Lived:
    run = lived(case)
    if run is None:
        raise SystemExit(f"{case.name} was never run: run autoscale without naming a stream")
    return run


def conf_min(topology: str, static: bool = False) -> Case:
    """Begin with one instance of everything."""
    name = f"{topology}-5-step{'-static' if static else ''}"
    return Case(name, topology, "5-step", PEAK, 1, STATIC if static else FORESIGHT)


def conf_expt(topology: str, expert: dict[str, int], static: bool = False) -> Case:
    """Begin with what the peak needs."""
    name = f"{topology}-3-step{'-static' if static else ''}"
    return Case(name, topology, "3-step", PEAK, expert, STATIC if static else FORESIGHT)


def expert(run: Lived, peak: float) -> dict[str, int]:
    """Give the fewest instances that the peak needs, by what rows and epochs cost in a run, with a tenth for what fluctuates."""
    return calibration.calibrated(run.snapshots, run.decisions).fewest(1.1 * peak)


def _cpu_load(subquery: str) -> float:
    """Weigh instances as table III does; the paper does not count its source, here it is like an intermediate operator."""
    return 80.0 if subquery.startswith("sink") else 20.0
