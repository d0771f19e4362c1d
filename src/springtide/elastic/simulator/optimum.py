"""The optimum in hindsight: the fewest instances that would have been enough at each moment, if the trace had been known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from springtide.elastic.simulator.model import Model
from springtide.elastic.simulator.traces import Trace

Floats = npt.NDArray[np.float64]

GRAIN = 0.002
"""Rates that differ by less than this share need the same number of instances."""


def needed(model: Model, trace: Trace) -> Floats:
    """Return the smallest sufficient total number of instances, for each stretch of the trace as long as an epoch."""
    rates = trace.averaged(model.pace)
    grains = np.ceil(np.log(np.maximum(rates, 1e-9)) / np.log1p(GRAIN))
    known = {g: sum(model.fewest(float((1 + GRAIN) ** g)).values()) for g in np.unique(grains)}
    return np.array([known[g] for g in grains], dtype=np.float64)


def paid(needed: Floats, pace: float, startup: float) -> Floats:
    """Return what has to be paid for that: an instance is paid for from the moment it is requested, and is requested just in time.

    >>> paid(np.array([1.0, 1.0, 1.0, 3.0, 1.0]), pace=10, startup=20).tolist()
    [1.0, 3.0, 3.0, 3.0, 1.0]
    """
    ahead = int(np.ceil(startup / pace - 1e-9))
    padded = np.concatenate([needed, np.zeros(ahead)])
    windows: Floats = np.lib.stride_tricks.sliding_window_view(padded, ahead + 1)
    return np.asarray(windows.max(axis=1), dtype=np.float64)
