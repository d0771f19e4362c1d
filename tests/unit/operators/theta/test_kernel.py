"""The theta join of two sets of tuples gives the pairs that asking the predicate of every pair gives (SC-6, SC-13, ST-6)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import springtide as st
from springtide.exchange import order
from springtide.operators.theta import kernel as theta
from springtide.operators.theta import tiles
from springtide.operators.theta.kernel import BEFORE, NUMBER, ThetaKernel, last, numbered, within
from springtide.operators.theta.numbers import Bound, tree_of
from springtide.query.steps import ThetaJoin
from springtide.testing import at

COLUMNS = {
    "tiny": pl.Int8,
    "i": pl.Int32,
    "big": pl.Int64,
    "u": pl.UInt16,
    "f": pl.Float32,
    "g": pl.Float64,
    "k": pl.String,
    "b": pl.Boolean,
    "t": pl.Datetime("us"),
    "d": pl.Duration("us"),
    "m": pl.Decimal(12, 2),
    "ts": st.TIME,
}
"""Of both sides; those of the right are called `…_right` in a pair."""


def tuples(seed: int, size: int) -> pl.DataFrame:
    """Values of every kind: many that are near to each other, some at the ends of their types, NaN, infinity, null."""
    rng = np.random.default_rng(seed)

    def ints(low: int, high: int, *ends: int) -> list[int]:
        return [int(rng.choice(ends)) if rng.random() < 0.05 else int(rng.integers(low, high)) for _ in range(size)]

    def floats() -> list[float]:
        odd = [np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0]
        return [float(rng.choice(odd)) if rng.random() < 0.05 else float(rng.uniform(-50, 50)) for _ in range(size)]

    frame = pl.DataFrame(
        {
            "tiny": ints(-128, 128, -128, 127),
            "i": ints(-50, 50, -(2**31), 2**31 - 1),
            "big": ints(-50, 50, -(2**63), 2**63 - 1, 2**62),
            "u": ints(0, 50, 0, 2**16 - 1),
            "f": floats(),
            "g": floats(),
            "k": [f"k{n}" for n in ints(0, 60, 0)],
            "b": rng.random(size) < 0.5,
            "t": ints(0, 10**8, 0),
            "d": ints(0, 10**8, -5),
            "m": pl.Series(ints(-5000, 5000, 0)) / 100,
            "ts": np.sort(rng.integers(0, 10**8, size)),
        }
    ).cast(COLUMNS)  # type: ignore[arg-type]
    nulls = [
        pl.when(pl.Series(rng.random(size) < 0.05)).then(None).otherwise(pl.col(n)).alias(n)
        for n in COLUMNS
        if n != "ts"
    ]
    return frame.with_columns(nulls)


def kernel(predicate: pl.Expr) -> ThetaKernel:
    left, right = (st.source(n, st.memory(schema=COLUMNS), ts="ts") for n in ("l", "r"))
    step = left.theta_join(right, predicate, within="1s").step
    assert isinstance(step, ThetaJoin)
    return ThetaKernel(step)


def rows(frames: Iterable[pl.DataFrame]) -> list[str]:
    return sorted(repr(row) for frame in frames for row in frame.iter_rows())


def brute(left: pl.DataFrame, right: pl.DataFrame, predicate: pl.Expr, length: int) -> list[str]:
    pairs = left.join(right.rename({"ts": "ts_right"}), how="cross", suffix="_right")
    times = pl.col("ts").to_physical(), pl.col("ts_right").to_physical()
    near = pairs.filter((times[0] - times[1]).abs() <= length)
    made = near.with_columns(pl.max_horizontal("ts", "ts_right")).drop("ts_right")
    return rows([made.filter(predicate)])


def col(name: str) -> tuple[pl.Expr, pl.Expr]:
    return pl.col(name), pl.col(f"{name}_right")


TINY, N, BIG, U, F, G, K, B, T, D, M = (col(n) for n in COLUMNS if n != "ts")
SECOND = timedelta(seconds=1)


def near(pair: tuple[pl.Expr, pl.Expr], most: Any) -> pl.Expr:
    return (pair[0] - pair[1]).abs() <= most


PREDICATES = {
    "band": near(N, 2) & near(F, 2),
    "band of floats": near(G, 0.5),
    "band between": N[0].is_between(N[1] - 2, N[1] + 2) & F[0].is_between(F[1] - 2, F[1] + 2),
    "bytes overflow": near(TINY, 3),
    "64 bits overflow": near(BIG, 3),
    "no sign": near(U, 3),
    "int and float": (N[0] - F[1]).abs() < 1,
    "int and wide float": (BIG[0] - G[1]).abs() < 1,
    "far": ~near(F, 90),
    "at least": F[0] - F[1] >= 95,
    "sum": N[0] + N[1] <= -90,
    "floats compared": (F[0] > G[1]) & (F[0] < G[1] + 1),
    "a literal of a float": F[0] - F[1] <= -99.1,
    "decimals": M[0] == M[1],
    "decimals and floats": (M[0] >= G[1]) & (M[0] <= G[1] + 0.5),
    "structs": pl.struct(TINY[0], K[0]) == pl.struct(TINY[1].alias("tiny"), K[1].alias("k")),
    "structs, of floats": pl.struct(G[0], B[0]) != pl.struct(G[1].alias("g"), B[1].alias("b")),
    "structs, null too": pl.struct(K[0]).eq_missing(pl.struct(K[1].alias("k"))) & (N[0] < N[1]),
    "not structs": ~(pl.struct(N[0]) == pl.struct(N[1].alias("i"))) & (K[0] == K[1]),
    "text": K[0] == K[1],
    "text in order": (K[0] < K[1]) & (K[0] > "k5"),
    "either text": (K[0] == K[1]) | (N[0] == N[1]),
    "either and both": ((K[0] == K[1]) | (N[0] == N[1])) & ((T[0] < T[1]) | (D[0] > D[1])),
    "overlap": ((T[0] < T[1]) & (T[1] < T[0] + D[0])) | ((T[1] < T[0]) & (T[0] < T[1] + D[1])),
    "times": (T[0] - T[1]).abs() <= SECOND,
    "time of the pair": (pl.col("ts").dt.replace_time_zone(None) - T[1]).abs() < SECOND,
    "truth": B[0] & ~B[1] & near(N, 1),
    "truth compared": (B[0] > B[1]) & near(N, 1),
    "equal or both null": N[0].eq_missing(N[1]),
    "not equal": (N[0] != N[1]) & near(F, 1),
    "not": ~((N[0] > N[1]) | (F[0] < F[1] + 90)),
    "one side": (N[0] > 40) & (N[1] < -40),
    "either side": (N[0] > 48) | (N[1] < -48),
    "anything": pl.when(N[0] > N[1]).then(F[0] > 49).otherwise(F[1] > 49),
    "product": N[0] * N[1] == 7,
    "distance": (F[0] - F[1]) ** 2 + (G[0] - G[1]) ** 2 <= 4,
    "a function": pl.struct(N[0], N[1]).map_batches(lambda s: s.struct[0] == s.struct[1], return_dtype=pl.Boolean),
    "always": pl.lit(True),
    "never": pl.lit(False),
    "null": pl.lit(None, dtype=pl.Boolean) & (N[0] > N[1]),
}


@pytest.mark.parametrize("name", PREDICATES)
def test_the_pairs_of_every_predicate(name: str) -> None:
    predicate = PREDICATES[name]
    left, right = tuples(1, 110), tuples(2, 120)
    for length in (10**8, 10**7):
        made = kernel(predicate).pairs(left, right, within(left, right, length))
        assert rows(made) == brute(left, right, predicate, length)


@pytest.mark.parametrize("seed", range(3, 9))
def test_all_at_once(seed: int) -> None:
    """Random conjunctions and alternatives of the predicates above."""
    rng = np.random.default_rng(seed)
    left, right = tuples(seed, 120), tuples(100 + seed, 110)
    for _ in range(5):
        chosen = [PREDICATES[n] for n in rng.choice([n for n in PREDICATES if n != "a function"], 4)]
        predicate = rng.choice([(chosen[0] | chosen[1]) & (chosen[2] | chosen[3]), chosen[0] & ~chosen[1] | chosen[2]])  # type: ignore[arg-type]
        made = kernel(predicate).pairs(left, right, within(left, right, 10**7))
        assert rows(made) == brute(left, right, predicate, 10**7)


def test_the_band_join_of_scalejoin_looks_at_few_pairs() -> None:
    """ST-6: of 9 million pairs hardly more are asked than there are."""
    rng = np.random.default_rng(0)
    size = 3000
    made = [
        pl.DataFrame({n: rng.uniform(1, 10_000, size) for n in ("i", "f")} | {"ts": np.arange(size)}) for _ in range(2)
    ]
    empty = tuples(0, 0)
    left, right = (
        pl.concat([empty, f.cast({"i": pl.Int32, "f": pl.Float32, "ts": st.TIME})], how="diagonal") for f in made
    )
    band = kernel(near(N, 10) & near(F, 10))
    asked = []
    shape = band.shape
    original = shape.made
    shape.made = lambda one, other, i, j: (asked.append(i.size), original(one, other, i, j))[1]  # type: ignore[method-assign, func-returns-value, assignment, misc]
    found = sum(f.height for f in band.pairs(left, right, within(left, right, 10**8)))
    close = [np.abs(left[n].to_numpy()[:, None] - right[n].to_numpy()) <= 10 for n in ("i", "f")]
    assert found == np.count_nonzero(close[0] & close[1]) > 10
    assert sum(asked) < found + 5


def test_many_pairs_come_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is larger than memory is streamed out: no piece is much larger than what is looked at in one go."""
    monkeypatch.setattr(theta, "AT_ONCE", 1000)
    monkeypatch.setattr(tiles, "CELLS", 1 << 14)
    left, right = tuples(1, 400), tuples(2, 400)
    for predicate in (pl.lit(True), N[0] > N[1], near(N, 3)):
        sizes = [f.height for f in kernel(predicate).pairs(left, right, within(left, right, 10**9))]
        assert sum(sizes) > 8_000
        assert max(sizes) <= (1 << 14) + 1000


def test_a_value_that_cannot_be_made_is_left_to_the_predicate() -> None:
    """The cast fails for a tuple that has no partner in the window: nobody asks."""
    left, right = (f.with_columns(pl.lit("7").alias("k")) for f in (tuples(1, 3), tuples(2, 2)))
    left = left.with_columns(pl.Series("k", ["7", "seven", "7"]), pl.Series("ts", [0, 10**15, 0]).cast(st.TIME))
    right = right.with_columns(pl.Series("ts", [0, 1]).cast(st.TIME))
    one = kernel(K[0].cast(pl.Int64) <= K[1].cast(pl.Int64))
    assert tree_of(one._conditions, left, right.rename({"k": "k_right"}), []) is None
    assert sum(f.height for f in one.pairs(left, right, within(left, right, 10**6))) == 4


def test_a_window_as_long_as_time() -> None:
    left, right = (
        pl.concat([tuples(1, 1)] * 3).with_columns(pl.Series("ts", ends).cast(st.TIME))
        for ends in ([-(2**62), 0, 2**62], [2**62, -5, -(2**62)])
    )
    always = kernel(pl.lit(True))
    assert sum(f.height for f in always.pairs(left, right, within(left, right, 2**62))) == 6
    assert sum(f.height for f in always.pairs(left, right, within(left, right, 0))) == 2


# ── the last n ────────────────────────────────────────────────────────────────────────────────────────────────────


def placed(*moments: tuple[str, int], origin: int = 0) -> pl.DataFrame:
    frame = pl.DataFrame(
        {"ts": [at(m) for m, _ in moments], "x": [x for _, x in moments]}, schema={"ts": st.TIME, "x": pl.Int64}
    )
    return frame.with_columns(order.of_step(origin))


def test_tuples_are_numbered_in_the_order_of_both_sides() -> None:
    """
    time    1s   2s         3s
    left    a    b          d          at the same place the left stands before the right, and the content decides
    right        x, y            z
    """
    left = placed(("3s", 4), ("1s", 1), ("2s", 2))
    right = placed(("4s", 9), ("2s", 8), ("2s", 7))
    one, other = numbered([left, right], [["ts", "x"], ["ts", "x"]], [10, 100])
    assert one is not None
    assert other is not None
    assert one.select("x", NUMBER, BEFORE).rows() == [(1, 10, 100), (2, 11, 100), (4, 12, 102)]
    assert other.select("x", NUMBER, BEFORE).rows() == [(7, 100, 12), (8, 101, 12), (9, 102, 13)]
    assert numbered([None, None], [[], []], [0, 0]) == [None, None]
    assert numbered([None, right], [[], ["ts", "x"]], [3, 4])[1][BEFORE].to_list() == [3, 3, 3]  # type: ignore[index]


def test_a_tuple_meets_the_last_n_before_it() -> None:
    older = pl.DataFrame({NUMBER: [0, 1, 2, 3, 4]})
    newer = pl.DataFrame({BEFORE: [0, 1, 4, 5]})

    def met(bounds: list[Bound], swap: bool) -> list[list[int]]:
        pairs = [(i, j) for i in range(5) for j in range(4)]
        a, b = (np.array([p[k] for p in pairs]) for k in ((1, 0) if swap else (0, 1)))
        held = np.logical_and.reduce([bound.holds(a, b) for bound in bounds])
        return [[i for (i, k), h in zip(pairs, held, strict=True) if h and k == j] for j in range(4)]

    wanted = [[], [0], [2, 3], [3, 4]]
    assert met(last(older, newer, 2, newer_is_left=False), swap=False) == wanted
    assert met(last(older, newer, 2, newer_is_left=True), swap=True) == wanted
