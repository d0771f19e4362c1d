"""Rankings of the most frequent or heaviest values."""

from __future__ import annotations

from typing import Any

import polars as pl


def make(maker: Any, pool: list[Any], made: Any) -> Any:
    """Rank some columns, with or without groups and weights."""
    r = maker.random
    keys = [n for n in made.columns(_is_key) if n not in ("window_start", "window_end", "rank", "count")]
    if not keys:
        return None
    by = r.sample(keys, min(len(keys), r.choice([1, 1, 2])))
    rest = [n for n in keys if n not in by]
    per = r.sample(rest, min(len(rest), r.choice([0, 0, 1, 2])))
    weight = r.choice([None, *made.columns(lambda t: t.is_integer())])
    sketch = r.choice([None, 64]) if weight is None else None  # weights may be below zero, which a sketch refuses
    stream = made.stream.top_k(
        r.choice([1, 2, 3, 10]), by, per=per, weight=weight, window=maker.window(), sketch=sketch
    )
    return type(made)(_renamed(maker, stream))


def _renamed(maker: Any, stream: Any) -> Any:
    """Give rank and count names that a second ranking leaves free."""
    return stream.rename({"rank": maker.fresh("r"), "count": maker.fresh("big", "big")})


def _is_key(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal() or dtype in (pl.String, pl.Boolean)
