"""The model of a query on a cluster: what a row costs in each subquery, what an epoch costs, and how long new instances take to come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from springtide.elastic import sizing
from springtide.elastic.sizing import FIXED, WorkRate
from springtide.query.plurals import plural

Floats = npt.NDArray[np.float64]

SOURCE = "input"
"""The one source of a model."""
RECOVERY = 10.0
"""Seconds that a failure costs, in addition to the repeated epoch."""


@dataclass(frozen=True)
class ModelStep:
    """A subquery."""

    cost: float
    """Seconds of work that a row takes."""
    task: float = field(default=0.0, kw_only=True)
    """Seconds of work that an instance has in each epoch, regardless of its rows."""
    upstream: tuple[str, ...] = ()
    """Empty if it reads the source."""
    takes: float = 1.0
    """The share of its predecessors' rows that reach it."""
    selectivity: float = 1.0
    """Rows out per row in."""
    buckets: int | None = 256
    """None for a stateless prefix, whose rows are distributed evenly."""
    weights: tuple[float, ...] | None = None
    """The share of each bucket in the rows; None: all the same."""
    by_chance: bool = False
    """Whether rows fall into buckets at random: out of a few rows, one instance gets more than another."""
    noise: float = 0.02
    """How much the cost of a row varies from epoch to epoch, as a standard deviation."""

    @property
    def heaviest(self) -> float:
        """Return the share of the heaviest bucket."""
        return max(self.weights) if self.weights else 1 / self.buckets if self.buckets else 0.0


def zipf(buckets: int, exponent: float, seed: int = 0) -> tuple[float, ...]:
    """Return bucket shares of which a few are large: keys with a Zipf distribution, in random order.

    >>> round(max(zipf(256, 1.0)), 3), max(zipf(4, 0.0))
    (0.163, 0.25)
    """
    shares = 1 / np.arange(1, buckets + 1) ** exponent
    return tuple(np.random.default_rng(seed).permutation(shares / shares.sum()).tolist())


@dataclass(frozen=True)
class Model:
    """A query, and where it runs. Times are in seconds."""

    steps: Mapping[str, ModelStep]
    """In the order of the plan."""
    overhead: float = 0.1
    """The fixed cost of an epoch."""
    launch: float = 0.001
    """The cost of an epoch per instance: the driver starts one task after another (ST-9)."""
    pace: float = 1.0
    """From the start of one epoch to the start of the next, if there is time."""
    pause: float = 0.0
    """From the end of one epoch to the start of the next, at least."""
    startup: float = 30.0
    """From the request for more instances until they are there."""
    handover: float = 1.0
    """How much longer the first epoch takes when all buckets of a subquery change owners."""
    failures: float = 0.0
    """Failures of an instance per hour."""
    rows_per_epoch: int | None = None
    """The most rows that one epoch takes."""
    slots: int | None = None
    """Tasks that can run at once; None: as many as there are instances."""
    levels: Mapping[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse an invalid model, and work out the stages."""
        for name, step in self.steps.items():
            unknown = [up for up in step.upstream if up not in self.steps]
            if unknown:
                raise ValueError(f"{name} takes rows of {unknown[0]}, which does not exist")
        found: dict[str, int] = {}
        for name, step in self.steps.items():
            found[name] = 1 + max((found[up] for up in step.upstream), default=-1)
        object.__setattr__(self, "levels", found)

    def rows(self) -> dict[str, float]:
        """Return how many rows reach each subquery per row at the source.

        >>> Model(
        ...     {"a": ModelStep(1.0, selectivity=0.5), "b": ModelStep(1.0, ("a",)), "c": ModelStep(1.0, ("a", "b"))}
        ... ).rows()
        {'a': 1.0, 'b': 0.5, 'c': 1.0}
        """
        found: dict[str, float] = {}
        for name, step in self.steps.items():
            above = [found[up] * self.steps[up].selectivity for up in step.upstream]
            found[name] = step.takes * (sum(above) if step.upstream else 1.0)
        return found

    def works(self, rate: float) -> dict[str, WorkRate]:
        """Return the work per second at a given rate of rows at the source."""
        rows = self.rows()
        return {
            name: WorkRate(
                self.levels[name],
                rate * rows[name] * step.cost,
                rate * rows[name] * step.cost * step.heaviest,
                most=step.buckets,
            )
            for name, step in self.steps.items()
        }

    def fixed(self, instances: int) -> float:
        """Return the fixed cost of an epoch with this many instances in total."""
        return self.overhead + self.launch * instances

    def available(self, instances: int) -> float:
        """Return the share of the time that is left for processing rows; epochs become longer than the pace if they must."""
        tasks = dict.fromkeys(self.levels.values(), 0.0)
        for name, step in self.steps.items():
            tasks[self.levels[name]] = max(tasks[self.levels[name]], step.task)
        fixed = self.fixed(instances) + sum(tasks.values())
        return 1 - fixed / max(self.pace, fixed / FIXED) if fixed else 1.0

    def fewest(self, rate: float) -> dict[str, int]:
        """Return the fewest instances that keep up with a rate."""
        works, total = self.works(rate), len(self.steps)
        for _ in range(20):  # more instances leave less time, so a few rounds are enough
            found = sizing.fewest(works, self.available(total))
            if self.available(sum(found.values())) >= self.available(total) - sizing.ROUNDING:
                return found
            total = sum(found.values())
        return found

    def rate(self, instances: int) -> float:
        """Return a rate for which this many instances in total are just enough; raise ValueError if the model cannot use that many."""
        low, high = 0.0, 1.0
        while sum(self.fewest(high).values()) < instances:
            if high > 1e12:
                most = sum(self.fewest(high).values())
                raise ValueError(f"it can use {plural(most, 'instance')} with the buckets that it has, not {instances}")
            low, high = high, high * 2
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if sum(self.fewest(middle).values()) > instances else (middle, high)
        return low

    def widened(self, instances: int) -> Model:
        """Return a model with enough buckets for this many instances: eight for each, if that is more than there are.

        >>> Model({"a": ModelStep(1.0)}).widened(1000).steps["a"].buckets
        8192
        """
        least = 2 ** math.ceil(math.log2(8 * instances))
        steps = {
            name: replace(step, buckets=max(step.buckets, least)) if step.buckets and not step.weights else step
            for name, step in self.steps.items()
        }
        return replace(self, steps=steps)

    def paced(self, pace: float, peak: float) -> Model:
        """Return a model with epochs of this length, in which an epoch takes no more rows than arrive in that time at the peak."""
        return replace(self, pace=pace, rows_per_epoch=max(1, round(peak * pace)))
