"""Tuples brought to the states that they belong to: each of several keys, each bucket, runs of a key (ST-2, ST-4)."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

import springtide as st
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH, bucket_of, bucket_of_hash, hash_of
from springtide.exchange.routing import buckets_of_list
from springtide.operators.user.kernel import KEY, in_runs, one_key_each, to_each_bucket, to_each_key
from springtide.query.operators import OWN_KEYS

BUCKETS = 8
ALL = np.ones(BUCKETS, dtype=bool)


def tweets(tags: list[Any], dtype: Any = pl.String) -> pl.DataFrame:
    frame = pl.DataFrame({"n": range(len(tags)), "tags": pl.Series(tags, dtype=pl.List(dtype))})
    return buckets_of_list(frame.lazy(), "tags", BUCKETS).collect()


def bucket(key: Any, dtype: Any = pl.String) -> int:
    found: int = pl.DataFrame({"k": pl.Series([key], dtype=dtype)}).select(bucket_of(["k"], BUCKETS)).item()
    return found


@pytest.mark.parametrize(
    ("dtype", "a", "b"),
    [
        (pl.String, "a", "b"),
        (pl.Int64, 1, 2),
        (pl.Boolean, True, False),
        (pl.Binary, b"a", b"b"),
        (pl.Decimal(9, 2), 1, 2),
    ],
)
def test_each_different_key_once_in_the_order_of_the_list(dtype: Any, a: Any, b: Any) -> None:
    """ST-2: null is a key like others; a tuple without keys reaches nobody."""
    found = to_each_key(tweets([[b, a, b, None], [], None, [None, None]], dtype), "tags", BUCKETS, ALL)
    assert found["n"].to_list() == [0, 0, 0, 3]
    assert found[KEY].to_list() == [b, a, None, None]
    assert found[OWN_KEYS].to_list() == [[b], [a], [None], [None]]
    assert found[BUCKET].to_list() == [bucket(k, dtype) for k in (b, a, None, None)]
    assert found.schema[OWN_KEYS] == pl.List(dtype)


def test_once_per_bucket_with_the_keys_that_are_there() -> None:
    keys = [str(i) for i in range(20)]
    found = to_each_bucket(tweets([[*keys, *keys]]), "tags", BUCKETS, ALL)
    assert found[BUCKET].n_unique() == found.height == len({bucket(k) for k in keys})
    for number, own in found.select(BUCKET, OWN_KEYS).iter_rows():
        assert own == [k for k in keys if bucket(k) == number]
    assert found["tags"].to_list() == [[*keys, *keys]] * found.height


def test_buckets_of_others_are_left_out() -> None:
    own = ALL.copy()
    own[bucket("a")] = False
    rows = tweets([["a"], ["a", "b"]])
    assert bucket("a") != bucket("b")
    assert to_each_key(rows, "tags", BUCKETS, own).select("n", KEY).rows() == [(1, "b")]
    assert to_each_bucket(rows, "tags", BUCKETS, own).select("n", OWN_KEYS).rows() == [(1, ["b"])]


def test_own_keys_one_by_one() -> None:
    rows = pl.DataFrame({"n": [1, 2], OWN_KEYS: [["a", None], ["b"]]})
    assert one_key_each(rows).rows() == [(1, ["a"]), (1, [None]), (2, ["b"])]


def placed(rows: list[tuple[Any, int]]) -> pl.DataFrame:
    """Tuples (key, ts) that stand in the total order by their position."""
    frame = pl.DataFrame(rows, schema={"k": pl.String, "ts": pl.Int64}, orient="row")
    frame = frame.with_columns(pl.col("ts").cast(st.TIME)).with_columns(order.of_source(0, "0", 0))
    return frame.with_columns(hash_of(["k"])).with_columns(bucket_of_hash(pl.col(HASH), BUCKETS))


def test_runs_of_a_key_in_the_total_order() -> None:
    random = Random(1)
    tuples = placed([(random.choice(["a", "b", None, "c"]), i // 3) for i in range(50)])
    rows, starts = in_runs(tuples.sample(fraction=1, shuffle=True, seed=2), ["k"], ["k", "ts"])
    assert len(starts) == 4
    for start, end in zip(starts, [*starts[1:], rows.height], strict=True):
        run = rows[int(start) : int(end)]
        assert run["k"].n_unique() == 1
        assert (
            run[order.POSITION].to_list()
            == tuples.filter(pl.col("k").eq_missing(run["k"][0]))[order.POSITION].to_list()
        )


def test_two_keys_with_one_hash_are_kept_apart() -> None:
    tuples = placed([("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]).with_columns(
        pl.lit(7, dtype=pl.UInt64).alias(HASH)
    )
    rows, starts = in_runs(tuples, ["k"], ["k", "ts"])
    assert starts.tolist() == [0, 3]
    assert rows["k"].to_list() == ["a", "a", "a", "b", "b"]
    assert rows[order.POSITION].to_list() == [0, 2, 4, 1, 3]
