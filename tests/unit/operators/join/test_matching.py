"""Which tuples meet: equal keys, within a length of time or among the last n; also when hashes cannot tell keys apart."""

from __future__ import annotations

from random import Random

import numpy as np
import polars as pl
import pytest

import springtide as st
from springtide.exchange.hashing import HASH, hash_of
from springtide.operators.join.matching import Indexed, Match, last, pairs, within
from springtide.operators.join.pairs import PairShape

SCHEMA = {"k": pl.String, "g": pl.Int64, "x": pl.Int64, "ts": st.TIME}
KEYS = ("k", "g")
HASHES = {
    "good": hash_of(KEYS),
    "all the same": pl.lit(7, dtype=pl.UInt64).alias(HASH),
    "same upper bits": (pl.lit(7 << 60, dtype=pl.UInt64) + pl.col("g").cast(pl.UInt64)).alias(HASH),
    "a few shared": (hash_of(KEYS) % 3).alias(HASH),
}


def tuples(seed: int, count: int, hashes: str = "good") -> pl.DataFrame:
    r = Random(seed)
    rows = [(r.choice("abc"), r.randrange(3), i, r.randrange(40)) for i in range(count)]
    frame = pl.DataFrame(rows, schema={**SCHEMA, "ts": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("ts").cast(st.TIME), HASHES[hashes])


def numbers(match: Match, size: int = 5) -> set[tuple[int, int]]:
    """Give the pairs as numbers of rows; each is there once."""
    found = []
    for i, j in match.blocks(size):
        assert i.size == j.size <= size
        found += list(zip(match.left.order[i].tolist(), match.right.order[j].tolist(), strict=True))
    assert len(found) == len(set(found)) == match.total
    return set(found)


def near(left: pl.DataFrame, right: pl.DataFrame, length: int) -> set[tuple[int, int]]:
    """Find pairs by brute force."""
    rows = [frame.with_columns(pl.col("ts").to_physical()).rows(named=True) for frame in (left, right)]
    return {
        (i, j)
        for i, a in enumerate(rows[0])
        for j, b in enumerate(rows[1])
        if (a["k"], a["g"]) == (b["k"], b["g"]) and abs(a["ts"] - b["ts"]) <= length
    }


@pytest.mark.parametrize("hashes", HASHES)
@pytest.mark.parametrize("length", [0, 3, 100, st.micros("5200w")])
def test_within_a_length_of_time(length: int, hashes: str) -> None:
    for seed in range(5):
        left, right = tuples(seed, 30, hashes), tuples(seed + 100, 20, hashes)
        match = within(Indexed(left, KEYS), Indexed(right, KEYS), length)
        assert numbers(match) == near(left, right, length)


def test_times_at_both_ends_of_all_times() -> None:
    """A length that would lead out of 64 bits reaches as far as there are times."""
    ends = pl.DataFrame({"k": ["a", "a"], "g": [1, 1], "ts": [-(2**63), 2**63 - 2]}).with_columns(
        pl.col("ts").cast(st.TIME), hash_of(KEYS)
    )
    one = Indexed(ends, KEYS)
    assert numbers(within(one, one, 10)) == {(0, 0), (1, 1)}


@pytest.mark.parametrize("hashes", HASHES)
@pytest.mark.parametrize("n", [1, 2, 50])
def test_the_last_n_that_stand_before(n: int, hashes: str) -> None:
    """Places are another number for every tuple of both sides."""
    for seed in range(5):
        left, right = tuples(seed, 30, hashes), tuples(seed + 100, 20, hashes)
        places = np.random.default_rng(seed).permutation(50)
        match = last(Indexed(left, KEYS, places[:30]), Indexed(right, KEYS, places[30:]), n)
        expected = set()
        for i, row in enumerate(left.select(KEYS).rows()):
            same = [
                j for j, other in enumerate(right.select(KEYS).rows()) if other == row and places[30 + j] < places[i]
            ]
            expected |= {(i, j) for j in sorted(same, key=lambda j: places[30 + j])[-n:]}
        assert numbers(match) == expected


@pytest.mark.parametrize("hashes", HASHES)
def test_an_index_can_tell_all_keys_apart(hashes: str) -> None:
    index = Indexed(tuples(1, 30, hashes), KEYS).told_apart()
    assert index.distinct
    assert index.arranged.select(KEYS).rows() == index.rows[index.order].select(KEYS).rows()
    runs = index.arranged.select(pl.struct(KEYS).rle().struct.field("value").struct.unnest())
    assert runs.is_unique().all()
    assert index.different_hashes.tolist() == sorted(set(index.hashes.tolist()))


def test_nothing_on_a_side() -> None:
    some, none = Indexed(tuples(1, 5), KEYS), Indexed(tuples(1, 0), KEYS)
    for left, right in ((some, none), (none, some), (none, none)):
        assert within(left, right, 10).total == last(left, right, 10).total == 0


def shape(where: pl.Expr | None) -> PairShape:
    source = st.source("s", st.memory(schema=SCHEMA), ts="ts")
    return PairShape(source.join(source, on=list(KEYS), within="5us", where=where).step)  # type: ignore[arg-type]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("length", [0, 30])  # few pairs, and more than tuples
def test_pairs_with_the_numbers_of_their_tuples(length: int, turned: bool) -> None:
    left, right = tuples(1, 40), tuples(2, 60)
    match = within(Indexed(left, KEYS), Indexed(right, KEYS), length)
    (made,) = pairs(shape(pl.col("x") < pl.col("x_right")), match, turned=turned)
    left, right = (right, left) if turned else (left, right)
    assert made.rows["x"].to_list() == left["x"][made.left].to_list()
    assert made.rows["x_right"].to_list() == right["x"][made.right].to_list()
    found = set(zip(made.left.tolist(), made.right.tolist(), strict=True))
    assert found == {(i, j) for i, j in near(left, right, length) if i < j}


def test_a_hot_key_is_paired_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key, 300 × 300 pairs, 1,000 of them in memory at once."""
    monkeypatch.setattr(Match.blocks, "__defaults__", (1_000,))
    hot = (
        tuples(1, 300)
        .with_columns(pl.lit("a").alias("k"), pl.lit(1).cast(pl.Int64).alias("g"))
        .with_columns(hash_of(KEYS))
    )
    one = Indexed(hot, KEYS)
    heights = [made.rows.height for made in pairs(shape(None), within(one, one, 100))]
    assert max(heights) == 1_000
    assert sum(heights) == 300 * 300
