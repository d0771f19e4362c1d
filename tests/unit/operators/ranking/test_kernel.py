"""Rankings: larger counts first, ties to the smaller value; rankings of parts make the ranking of all."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.operators.ranking.kernel import counting_step, ranked
from springtide.operators.sliding.kernel import SlidingAggregate
from springtide.query.steps import TopK

COLUMNS: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "w": pl.UInt64, "ts": st.TIME}


def step_of(k: int = 2, by: Any = "x", **more: Any) -> TopK:
    source = st.source("rows", st.memory(schema=COLUMNS), ts="ts")
    step = source.top_k(k, by, window=st.tumbling("10us"), **more).step
    assert isinstance(step, TopK)
    return step


def counts_of(rows: list[tuple[int, str | None, int | None, int]]) -> pl.DataFrame:
    """Make counts of (window, k, x, count)."""
    columns = {"window_start": pl.Int64, "k": pl.String, "x": pl.Int64, "count": pl.Int64}
    start = pl.col("window_start") * 10
    made = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        start.cast(st.TIME).alias("window_start"),
        (start + 10).cast(st.TIME).alias("window_end"),
        (start + 9).cast(st.TIME).alias("ts"),
    )
    return made.select(counting_step(step_of(per="k")).schema.names())


def shown(ranking: pl.DataFrame) -> list[tuple[Any, ...]]:
    window = pl.col("window_start").cast(pl.Int64) // 10
    return ranking.select(window, "k", "rank", "x", "count").rows()


def in_a_loop(rows: list[tuple[int, str | None, int | None, int]], k: int) -> list[tuple[Any, ...]]:
    groups: dict[tuple[int, str | None], list[tuple[int | None, int]]] = {}
    for window, key, x, count in rows:
        groups.setdefault((window, key), []).append((x, count))
    found = []
    for (window, key), values in groups.items():
        values.sort(key=lambda value: (-value[1], value[0] is not None, value[0] or 0))
        found += [(window, key, rank, *value) for rank, value in enumerate(values[:k], 1)]
    return found


rows_of_counts = some.dictionaries(
    some.tuples(some.integers(0, 2), some.sampled_from(["a", "b", None]), some.none() | some.integers(-5, 5)),
    some.integers(-3, 3),
    max_size=60,
).map(lambda found: [(*key, count) for key, count in found.items()])


@given(rows_of_counts, some.integers(1, 8))
def test_the_ranking_is_that_of_a_loop(rows: list[Any], k: int) -> None:
    step = step_of(k, per="k")
    ranking = ranked(step, counts_of(rows))
    assert ranking.schema == step.schema
    assert sorted(shown(ranking), key=repr) == sorted(in_a_loop(rows, k), key=repr)


@given(rows_of_counts, some.integers(1, 4), some.integers(1, 4))
def test_rankings_of_parts_make_the_ranking_of_all(rows: list[Any], k: int, parts: int) -> None:
    step = step_of(k, per="k")
    some_ranked = [ranked(step, counts_of(rows[i::parts])) for i in range(parts)]
    merged, whole = ranked(step, pl.concat(some_ranked)), ranked(step, counts_of(rows))
    assert sorted(shown(merged), key=repr) == sorted(shown(whole), key=repr)


def test_ties_go_to_the_smaller_value_nulls_first() -> None:
    rows = [(0, "a", 3, 5), (0, "a", None, 5), (0, "a", -1, 5), (0, "a", 9, 6)]
    assert shown(ranked(step_of(3, per="k"), counts_of(rows))) == [  # type: ignore[arg-type]
        (0, "a", 1, 9, 6),
        (0, "a", 2, None, 5),
        (0, "a", 3, -1, 5),
    ]


@pytest.mark.parametrize(
    ("weight", "counts"),
    [(None, [("b", 2), ("a", 1)]), ("w", [("a", 2**63 - 1), ("b", 2**63 - 1)])],
    ids=["count", "weight"],
)
def test_values_are_counted_or_weighed_in_64_bits(weight: str | None, counts: list[tuple[str, int]]) -> None:
    """A sum beyond 64 bits counts as the greatest."""
    step = step_of(5, "k", weight=weight)
    kernel = SlidingAggregate(counting_step(step))
    tuples = pl.LazyFrame(
        {"k": ["a", "b", "b"], "w": [2**64 - 2, 2**63, None], "ts": [0, 1, 2]},
        schema={"k": pl.String, "w": pl.UInt64, "ts": pl.Int64},
    ).with_columns(pl.col("ts").cast(st.TIME))
    panes = kernel.combine(tuples).with_columns(pl.lit(0, dtype=pl.UInt16).alias("__bucket")).collect()
    rows, _ = kernel.close(None, 0, panes, None)
    assert ranked(step, rows).select("k", "count").rows() == counts
