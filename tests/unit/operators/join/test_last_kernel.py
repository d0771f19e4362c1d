"""The last n of each key and side, step by step: whatever is cut into steps, the pairs are the same."""

from __future__ import annotations

from random import Random

import polars as pl
import pytest

import springtide as st
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH, bucket_of
from springtide.operators.join.last_kernel import AT, PAIRED, LastJoin

SCHEMA = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}


def join(n: int) -> LastJoin:
    left, right = (st.source(name, st.memory(schema=SCHEMA), ts="ts") for name in "lr")
    return LastJoin(left.join(right, on="k", within=st.last_n(n), how="left").step)  # type: ignore[arg-type]


def tuples(text: str, origin: int) -> pl.DataFrame | None:
    """Write tuples as `1a 2b`: time and key; x is their number. The hash cannot tell keys apart."""
    rows = [(word[-1], i, int(word[:-1])) for i, word in enumerate(text.split())]
    frame = pl.DataFrame(rows, schema={**SCHEMA, "ts": pl.Int64}, orient="row").with_columns(pl.col("ts").cast(st.TIME))
    placed = frame.with_columns(*order.of_source(origin, "0", 0), bucket_of(["k"], 4))
    return placed.with_columns(pl.lit(5, dtype=pl.UInt64).alias(HASH)) if rows else None


def pairs_of(rows: pl.DataFrame) -> list[tuple[int, ...]]:
    return sorted(rows.select("x", "x_right", pl.col("ts").to_physical()).rows(), key=str)


def test_pairs_pushed_out_known_and_left_over() -> None:
    """Last 1.

    time    1   2   3   4   5
    left    0a  1a      2b  3a         0 is pushed out by 1 at 2; 2 waits
    right           0a                 meets 1; 3 meets it
    """
    step = join(1).advance((None, None), (tuples("1a 2a 4b 5a", 0), tuples("3a", 1)))
    assert pairs_of(pl.concat(step.pairs())) == [(1, 0, 3), (3, 0, 5)]
    assert pairs_of(step.pushed_out()) == [(0, None, 2)]
    known = step.known(0).select("x", AT, PAIRED)
    assert sorted(known.rows()) == [(2, 0, False), (3, 0, True)]
    assert step.known(1)["x"].to_list() == [0]
    assert pairs_of(step.left_over(9)) == [(2, None, 9)]
    assert pairs_of(step.left_over(1)) == [(2, None, 4)]


def test_only_keys_that_changed_are_written_again() -> None:
    """b has a new right tuple, and with it a left one meets its first partner; of a nothing is new; c was not known."""
    kernel = join(2)
    first = kernel.advance((None, None), (tuples("1a 2a 3a 4b", 0), tuples("5a", 1)))
    list(first.pairs())
    known = first.known(0), first.known(1)
    assert sorted(known[0].select("x", AT).rows()) == [(1, 0), (2, 1), (3, 1)]
    second = kernel.advance(known, (tuples("7c", 0), tuples("8b", 1)))
    assert [row[:2] for row in pairs_of(pl.concat(second.pairs()))] == [(3, 0)]
    assert sorted(second.known(0).select("k", "x", PAIRED).rows()) == [("b", 3, True), ("c", 0, False)]
    assert second.known(1)["k"].to_list() == ["b"]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_cut_into_any_steps_the_rows_are_the_same(n: int) -> None:
    for seed in range(8):
        r, kernel = Random(seed), join(n)
        events = [(t, r.randrange(2), r.choice("ab")) for t in range(40)]
        whole, cut = [], []
        for rows, step in ((whole, 40), (cut, r.choice([1, 3, 7]))):
            known: list[pl.DataFrame | None] = [None, None]
            for first in range(0, 40, step):
                part = events[first : first + step]
                new = [tuples(" ".join(f"{t}{k}" for t, side, k in part if side == s), s) for s in (0, 1)]
                advance = kernel.advance(
                    known, [None if f is None else f.with_columns(x=pl.col("ts").to_physical()) for f in new]
                )
                rows += [*advance.pairs(), advance.pushed_out()]
                for side in (0, 1):  # keys that are not written stay as they were
                    now = advance.known(side)
                    old = known[side]
                    known[side] = (
                        now if old is None else pl.concat([old.join(now, on="k", how="anti").select(now.columns), now])
                    )
            rows.append(advance.left_over(99))
        assert pairs_of(pl.concat(cut)) == pairs_of(pl.concat(whole))


def test_ties_are_broken_by_place_then_side_then_content() -> None:
    """At one time and place the left tuple stands before the right one; of one side the smaller content does."""
    kernel = join(1)
    same = [
        t.with_columns(pl.lit(0, dtype=pl.Int64).alias(order.POSITION))
        for t in (tuples("1a 1a", 0), tuples("1a", 0))
        if t is not None
    ]
    left, right = same[0].with_columns(x=pl.Series([9, 4])), same[1]
    step = kernel.advance((None, None), (left, right))
    assert pairs_of(pl.concat(step.pairs())) == [(9, 0, 1)]
    assert pairs_of(step.pushed_out()) == [(4, None, 1)]
    assert BUCKET in step.known(0).columns
