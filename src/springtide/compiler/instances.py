"""How many instances each subquery gets: SC-8, the query instantiator."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from springtide.compiler.plan import Plan
from springtide.query.plurals import plural

UTILISATION = 0.7
"""How busy an instance may be when the number of instances is chosen by rate."""


@dataclass(frozen=True)
class Cost:
    """What a subquery has to do."""

    rate: float
    """How many tuples come in, per second or per run; the unit is the same for all subqueries."""
    seconds: float
    """The time that one of them takes in all operators of the subquery together."""
    most: int | None = None
    """The most instances that the subquery can use, because it has no more buckets."""

    @property
    def load(self) -> float:
        """Return the work per unit of the rate."""
        return self.rate * self.seconds


@dataclass(frozen=True)
class Observation:
    """What one step did with some tuples."""

    step: str
    rows: int
    seconds: float


def costs(plan: Plan, observations: Iterable[Observation], rate: float | None = None) -> dict[str, Cost]:
    """Return what the steps did in a sample run, summed up by subquery; with `rate`, scaled to that many rows/s at the sources.

    A step that runs in several subqueries is divided evenly between them: it was not measured which tuple came from where.
    """
    rows: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for seen in observations:
        rows[seen.step] += seen.rows
        seconds[seen.step] += seen.seconds
    # The merge of the results of a head's instances counts with the head: it was not measured separately, and costs little.
    whole = {s.name: (plan.merge_of(s) or s).steps for s in plan.subqueries if not s.merges}
    homes = {step: sum(step in own for own in whole.values()) for step in plan.graph.steps}
    read = sum(rows[source] for s in plan.subqueries for source in s.sources)
    scale = 1.0 if rate is None or not read else rate / read
    result = {}
    for subquery in (plan.subquery(name) for name in whole):
        entered = sum(rows[step] for step in ([subquery.head] if subquery.head else subquery.sources))
        spent = sum(seconds[step] / homes[step] for step in whole[subquery.name])
        result[subquery.name] = Cost(entered * scale, spent / entered if entered else 0.0, subquery.buckets)
    return result


def needed(costs: Mapping[str, Cost], utilisation: float = UTILISATION) -> dict[str, int]:
    """Return how many instances each subquery needs for its load if none is to be busier than `utilisation`.

    >>> needed({"calls": Cost(rate=10_000, seconds=50e-6), "heavy": Cost(rate=10_000, seconds=400e-6)})
    {'calls': 1, 'heavy': 6}
    """
    result = {}
    for name, cost in costs.items():
        # Times are measured to a nanosecond at best: if a number exceeds a whole one by less than that, the excess is not real.
        wanted = max(1, math.ceil(cost.load / utilisation - 1e-9))
        result[name] = wanted if cost.most is None else min(wanted, cost.most)
    return result


def instances(costs: Mapping[str, Cost], available: int) -> dict[str, int]:
    """Share out the available instances in proportion to load, at least one each, by largest remainder (SC-8).

    >>> instances({"calls": Cost(10_000, 1e-5), "heavy": Cost(10_000, 4e-5), "top": Cost(10, 4e-5)}, available=12)
    {'calls': 2, 'heavy': 9, 'top': 1}
    """
    if available < len(costs):
        raise ValueError(f"give at least {plural(len(costs), 'instance')}, one for each subquery, not {available}")
    quotas = _quotas(costs, available)
    given = {name: math.floor(quota + 1e-9) for name, quota in quotas.items()}
    left = round(sum(quotas.values())) - sum(given.values())
    for name in sorted(quotas, key=lambda name: quotas[name] - given[name], reverse=True)[:left]:
        given[name] += 1
    return given


def _quotas(costs: Mapping[str, Cost], available: int) -> dict[str, float]:
    """Divide `available` in proportion to load, within the limits of each subquery: at least 1, at most `most`.

    Subqueries that hit a limit are fixed, the rest is divided among the others, and so on. When both limits are hit, only
    the side that is off by more is fixed in that round, because it decides which way the others move.
    """
    quotas: dict[str, float] = {}
    free = dict(costs)
    while free:
        left = available - sum(quotas.values())
        total = sum(cost.load for cost in free.values())
        wanted = {n: left * (c.load / total if total else 1 / len(free)) for n, c in free.items()}
        kept = {n: min(max(want, 1.0), free[n].most or math.inf) for n, want in wanted.items()}
        off = sum(kept[n] - wanted[n] for n in free)
        hit = [n for n in free if (kept[n] > wanted[n] if off > 0 else kept[n] < wanted[n])] if abs(off) > 1e-9 else []
        for name in hit or list(free):
            quotas[name] = kept[name]
            del free[name]
    return {name: quotas[name] for name in costs}
