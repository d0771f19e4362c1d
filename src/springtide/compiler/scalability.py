"""How far virtual shared-nothing and pure shared-nothing scale: ST-9, section 8 of the STRETCH paper.

One thread of T^I reads, n threads of T^P process, one of T^O writes. More threads of T^P help as long as T^P is the slowest:

    d_n^P = max(d^I + overhead at the input, d_n^P, d^O + overhead at the output)

Pure shared-nothing (P_SN) routes at the input and merge-sorts at the output. Virtual shared-nothing (V_SN) lets every thread read
everything, pays for synchronisation at the input, and spreads the sorting. The paper writes `log` without a base: here it is
the natural logarithm.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from springtide.compiler.tables import columns
from springtide.query.errors import QueryError

_MOST = 100_000
"""More threads than anyone has: the search for the highest n ends there."""


@dataclass(frozen=True)
class Costs:
    """The variables of table 1, with the values given there: times per tuple in units of d^I."""

    processing: float = 16
    """d^P: one thread of T^P; n of them take d^P/n."""
    output: float = 1
    """d^O: the thread of T^O, without merging."""
    route: float = 0.1
    """P_SN at the input: d^R = route·n."""
    share: float = 0.01
    """V_SN at the input: d^C = share·n."""
    merge_pure: float = 0.1
    """P_SN at the output: d^M = merge_pure·n·log n."""
    merge_virtual: float = 0.01
    """V_SN at the output: d^M = merge_virtual·n·log n."""


@dataclass(frozen=True)
class Times:
    """How long a tuple takes at each of the three places."""

    input: float
    processing: float
    output: float

    @property
    def rates(self) -> tuple[float, float, float]:
        """Return the highest rate at each place, in tuples per d^I."""
        return 1 / self.input, 1 / self.processing, 1 / self.output


def virtual(costs: Costs, n: int) -> Times:
    """Return the times of V_SN with n threads.

    >>> virtual(Costs(), 1)
    Times(input=1.01, processing=16.0, output=1.0)
    """
    return Times(1 + costs.share * n, costs.processing / n, costs.output + costs.merge_virtual * n * math.log(n))


def pure(costs: Costs, n: int) -> Times:
    """Return the times of P_SN with n threads.

    >>> pure(Costs(), 1)
    Times(input=1.1, processing=16.0, output=1.0)
    """
    return Times(1 + costs.route * n, costs.processing / n, costs.output + costs.merge_pure * n * math.log(n))


def highest(times: Callable[[Costs, int], Times], costs: Costs) -> int:
    """Return the highest n at which T^P is still the slowest; 0 if it never is.

    >>> highest(virtual, Costs()), highest(pure, Costs())
    (12, 6)
    """

    def processing_is_slowest(n: int) -> bool:
        at = times(costs, n)
        return at.processing >= max(at.input, at.output)

    return sum(1 for _ in itertools.takewhile(processing_is_slowest, range(1, _MOST + 1)))


def scalability_text(costs: Costs) -> str:
    """Return the rates of both for growing n as text, and how far each scales."""
    if (
        costs.processing <= 0
        or costs.output <= 0
        or min(costs.route, costs.share, costs.merge_pure, costs.merge_virtual) < 0
    ):
        raise QueryError(
            "(scalability)", "a time is below zero", "give d^P and d^O above zero, overheads of zero or more"
        )
    far, near = highest(virtual, costs), highest(pure, costs)
    rows: list[Sequence[str]] = [
        ("", "V_SN", "", "", "", "P_SN", "", "", ""),
        ("n", "T^I", "T^P", "T^O", "", "T^I", "T^P", "T^O", ""),
    ]
    for n in _numbers(max(far, near), {far, near}):
        rates = [f"{rate:.4f}" for rate in (*virtual(costs, n).rates, *pure(costs, n).rates)]
        marks = ["← highest" if n == top else "" for top in (far, near)]
        rows.append((str(n), *rates[:3], marks[0], *rates[3:], marks[1]))
    return "\n".join(
        [
            "highest rates in tuples per d^I, with n threads in T^P",
            "",
            *columns(rows, right=[0, 1, 2, 3, 5, 6, 7]),
            "",
            f"V_SN, virtual shared-nothing, {_scales(far)}",
            f"P_SN, pure shared-nothing,    {_scales(near)}",
            "",
            *_assumptions(costs),
        ]
    )


def _numbers(top: int, marked: set[int]) -> list[int]:
    """Return the values of n to show: all of them if they are few, otherwise ever sparser ones; always the marked ones and some beyond them."""
    end = top + max(2, top // 4)
    few = {n for n in range(1, end + 1) if end <= 20 or n <= 4 or n % (1 << (n.bit_length() - 2)) == 0}
    return sorted(n for n in few | marked if n > 0)


def _scales(n: int) -> str:
    if n == 0:
        return "does not scale: T^P is not the slowest even with one thread"
    return f"scales to n = {n}" if n < _MOST else f"scales to n = {n} and beyond"


def _assumptions(costs: Costs) -> list[str]:
    rows = [
        ("", "at the input", "processing", "at the output"),
        (
            "V_SN",
            f"d^I + {costs.share:g}·n",
            f"{costs.processing:g}/n",
            f"{costs.output:g} + {costs.merge_virtual:g}·n·ln n",
        ),
        (
            "P_SN",
            f"d^I + {costs.route:g}·n",
            f"{costs.processing:g}/n",
            f"{costs.output:g} + {costs.merge_pure:g}·n·ln n",
        ),
    ]
    return ["times per tuple, d^I = 1 (STRETCH, section 8 and table 1)", *("  " + line for line in columns(rows))]
