"""A picture of runs: the load, the instances of each policy next to the fewest that are enough, and the latency."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from springtide.elastic.simulator import optimum
from springtide.elastic.simulator.cluster import SimulatedRun
from springtide.elastic.simulator.score import BOUND
from springtide.query.errors import SpringtideError


class MissingPlots(SpringtideError):
    """The plotting library is not installed."""


def check() -> None:
    """Raise an error right away if nothing can be drawn."""
    _matplotlib()


def draw(runs: Mapping[str, SimulatedRun], path: Path, bound: float = BOUND) -> None:
    """Write a picture of several policies' runs of the same trace; the suffix of the path determines the format."""
    first = next(iter(runs.values()))
    figure = _matplotlib().Figure(figsize=(10, 8), layout="constrained")
    load, degrees, latency = figure.subplots(3, 1, sharex=True, height_ratios=(1, 2, 1))
    minutes = np.arange(first.trace.seconds) / 60
    load.plot(minutes, first.trace.rates, color="0.3", linewidth=0.8)
    load.set(ylabel="rows/s", ylim=(0, None), title=first.trace.name)
    needed = optimum.needed(first.model, first.trace)
    degrees.fill_between(
        np.arange(needed.size) * first.model.pace / 60, needed, step="post", color="0.85", label="least sufficient"
    )
    for name, run in runs.items():
        starts = [e.start / 60 for e in run.epochs]
        degrees.step(starts, run.degrees, where="post", linewidth=1.2, label=name)
        latency.plot([e.end / 60 for e in run.epochs], [e.p99 for e in run.epochs], linewidth=0.8)
    degrees.set(ylabel="instances", ylim=(0, None))
    degrees.legend(loc="upper right", fontsize="small")
    latency.axhline(bound, color="0.5", linestyle=":")
    latency.set(ylabel="p99 latency (s)", xlabel="minutes", yscale="log")
    figure.savefig(path, dpi=110)


def _matplotlib() -> Any:
    try:
        return import_module("matplotlib.figure")
    except ImportError:
        raise MissingPlots("a picture needs matplotlib: pip install 'springtide[plots]'") from None
