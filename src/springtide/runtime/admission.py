"""How many rows an epoch takes at most. Pure.

A burst makes more epochs, not ever larger ones: between two epochs instances come and go, rows become visible, and a crash repeats no more than one. But an epoch costs Spark a tenth of a
second, whatever it does. So one that would be over much sooner than anybody needs takes more rows while more are waiting (`docs/decisions/0013-size-of-epochs.md`).
"""

from __future__ import annotations

from typing import Final

USUAL: Final = 4_000_000
"""Rows that an epoch takes from an input at most, if nothing is said and no epoch has shown yet how long that takes."""
MOST: Final = 16_000_000
"""An epoch is never larger than this unless somebody says so: its rows must fit into the memory of the workers."""
WANTED: Final = 1.0
"""Seconds that an epoch may take while more rows are waiting."""
_STEP: Final = 2
"""An epoch takes at most so many times as many rows as the last one did: one that was short by chance says little."""


class Admission:
    """Decides how many rows the next epoch takes from each input at most."""

    def __init__(self, bound: int | None = None) -> None:
        """Begin with the usual; a `bound` that somebody gave stays as it is."""
        self._bound = bound
        self.limit: int = USUAL if bound is None else bound
        """Rows of each input, in the next epoch."""

    def learn(self, seconds: float, rows: int, waiting: int) -> None:
        """Note how long an epoch took, how many rows it got from the input that gave the most, and how many were there that it could not take.

        Once none are waiting, the next burst begins with the usual again: nobody knows what its rows will cost.
        """
        if self._bound is None:
            times = min(WANTED / seconds, _STEP) if seconds > 0 else _STEP
            self.limit = max(USUAL, min(MOST, round(min(rows, self.limit) * times))) if waiting else USUAL

    def forget(self) -> bool:
        """Begin with the usual again; return whether an epoch could have been larger than that."""
        if self._bound is not None or self.limit == USUAL:
            return False
        self.limit = USUAL
        return True
