"""All of AUTOSCALE's experiments live on Spark (AS-7): four topologies, two streams, from one instance of everything (ConfMin) and from what the peak needs (ConfExpt).

Static and predictive run side by side. All sixteen take about an hour; words choose some of them: `diamond 3-step expt`. Runs are kept, and those that were not chosen are
taken from the last time, if there was one. What the peak needs is known from the costs in the topology's first ConfMin run.
"""

import itertools
from typing import Any

from benchmarks.elastic import advertising, autoscale
from benchmarks.elastic.live import FORESIGHT, STATIC, STREAMS, TOPOLOGIES, Case, Lived, live, lived, session
from benchmarks.measure import result, say

CONFS = ("min", "expt")


def main(*words: str) -> None:
    everything = list(itertools.product(TOPOLOGIES, CONFS, STREAMS))
    unknown = set(words) - {word for case in everything for word in case}
    if unknown:
        raise SystemExit(f"{', '.join(sorted(unknown))}: there are {', '.join((*TOPOLOGIES, *CONFS, *STREAMS))}")
    chosen = [
        case
        for case in everything
        if all(word in words or not set(words) & set(group) for word, group in _groups(case))
    ]
    with session() as spark:
        for topology, conf, stream in chosen:
            live(spark, *(_case(topology, conf, stream, static) for static in (True, False)))
    found: dict[str, Any] = {}
    for topology, conf, stream in everything:
        if conf == "expt" and _known(topology) is None:
            continue
        runs = [lived(_case(topology, conf, stream, static)) for static in (True, False)]
        if runs[0] is not None and runs[1] is not None:
            found[f"{topology}, {stream}, {conf}"] = _compared(runs[0], runs[1])
    for name, figures in found.items():
        say(f"{name}: {figures}")
    result("autoscale-all", runs=found)


def _groups(case: tuple[str, str, str]) -> list[tuple[str, tuple[str, ...]]]:
    return list(zip(case, (tuple(TOPOLOGIES), CONFS, tuple(STREAMS)), strict=True))


def _case(topology: str, conf: str, stream: str, static: bool) -> Case:
    peak = advertising.PEAK if topology == "advertising" else autoscale.PEAK
    instances: Any = 1
    if conf == "expt":
        known = _known(topology)
        if known is None:
            raise SystemExit(f"what the peak needs is known from a run of {topology} min: run that first")
        instances = autoscale.expert(known, peak)
    name = f"all-{topology}-{stream}-{conf}{'-static' if static else ''}"
    return Case(name, topology, stream, peak, instances, STATIC if static else FORESIGHT)


def _known(topology: str) -> Lived | None:
    """Give a run with changes from which costs can be learned."""
    return next((run for stream in STREAMS if (run := lived(_case(topology, "min", stream, static=False)))), None)


def _compared(static: Lived, predictive: Lived) -> dict[str, Any]:
    return {
        "congested_static": static.congested,
        "congested_predictive": predictive.congested,
        "saved_instances_pct": round(100 * (1 - predictive.instance_seconds / static.instance_seconds), 1),
        "throughput_ratio": round(predictive.rows / static.rows, 3),
        "changes": len(predictive.decisions),
    }
