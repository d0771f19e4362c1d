"""Aggregates over windows of n tuples."""

from __future__ import annotations

from typing import Any

import springtide as st


def make(maker: Any, pool: list[Any], made: Any) -> Any:
    """Aggregate the last n tuples: one pane or many, of one tuple or of several; sizes that are no multiple of the advance, too."""
    r = maker.random
    every = r.choice([1, 1, 1, 2, 3, 4, 6])
    size = r.choice([every, every * r.randint(2, 5), every + r.randint(1, 2 * every + 1), every * 20])
    return maker.aggregate(made, st.last_n(size, every=every))
