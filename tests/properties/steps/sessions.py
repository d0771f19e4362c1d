"""Aggregates over sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import springtide as st


def make(maker: Any, pool: list[Any], made: Any) -> Any:
    """Aggregate sessions, with gaps from less than any distance between two tuples to most of the input."""
    r, unit = maker.random, maker.unit
    gap = r.choice([1, unit, unit + 1, 2 * unit, 3 * unit, 5 * unit, 11 * unit, 50 * unit])
    return maker.aggregate(made, st.session(timedelta(microseconds=gap)))
