"""Versions of keys: the newest counts, and what is gone is forgotten."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

import polars as pl
import pytest

from springtide.exchange.hashing import BUCKET, HASH
from springtide.operators.operator import Operator, OperatorResult
from springtide.operators.state_view import StateView
from springtide.operators.tables import ALIVE, VERSION
from springtide.operators.versions import find, keyed, newest
from springtide.runtime.epoch import Epoch
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import SubqueryState
from springtide.state.segment import Segment
from springtide.state.tiers import Tiers


def rows(*found: tuple[int, Any, int, int]) -> pl.DataFrame:
    """Rows (hash, key, version, value); without a value the key is gone."""
    schema = {HASH: pl.UInt64, "k": pl.String, VERSION: pl.Int64, "x": pl.Int64}
    frame = pl.DataFrame(found, schema=schema, orient="row")
    return frame.with_columns(pl.lit(0, dtype=pl.UInt16).alias(BUCKET), pl.col("x").is_not_null().alias(ALIVE))


def test_the_newest_version_of_each_key() -> None:
    found = newest(rows((2, "b", 1, 10), (1, "a", 3, 11), (1, "a", 2, 12), (2, "b", 4, 13)), ["k"])
    assert found.select("k", "x").rows() == [("a", 11), ("b", 13)]
    assert newest(rows(), ["k"]).height == 0


def test_all_rows_of_the_newest_version() -> None:
    found = newest(rows((1, "a", 2, 1), (1, "a", 3, 2), (1, "a", 3, 3)), ["k"])
    assert found["x"].to_list() == [2, 3]


def test_keys_with_one_hash_and_null() -> None:
    found = newest(rows((1, "a", 2, 1), (1, None, 3, 2), (1, None, 1, 3), (1, "a", 1, 4)), ["k"])
    assert sorted(found["x"].to_list()) == [1, 2]


class Keys(Operator):
    """Writes what it is told."""

    tables: ClassVar = {"keys": keyed(["k"])}

    def send(self, *_: Any) -> Any:
        raise NotImplementedError

    def run(self, *_: Any) -> Any:
        raise NotImplementedError

    def oldest(self, marks: Any) -> dict[str, int]:
        return {}


def epoch(tmp_path: Any, number: int, segments: tuple[Segment, ...], merge: tuple[Segment, ...]) -> StateView:
    files = {0: tuple(s.file for s in merge)}
    state = {"q": SubqueryState({}, segments)}
    return StateView(
        Epoch(number, Tiers(str(tmp_path)), {}, {}, {}, {}, {"q": BucketMap.even(8, 1)}, state, {"q": files}), "q", 0
    )


def test_a_key_that_is_gone_is_forgotten_when_nothing_older_is_left(tmp_path: Any) -> None:
    """Segments: a lives; a is gone; b lives. The second alone must go on saying that a is gone."""
    head = Keys()

    def write(number: int, row: Any, segments: Any = (), merge: Any = ()) -> tuple[Segment, ...]:
        new = rows(row) if row else rows()
        return head.write(epoch(tmp_path, number, segments, merge), OperatorResult(pl.DataFrame(), {}, {"keys": new}))

    first, gone, other = write(1, (1, "a", 1, 5)), write(2, (1, "a", 2, None)), write(3, (2, "b", 3, 6))
    every = (*first, *gone, *other)
    assert [(s.low, s.high) for s in every] == [(1, 1), (2, 2), (3, 3)]
    (kept,) = write(4, None, every, (*gone, *other))
    assert kept.rows == 2, "the first segment still says that a lives"
    (last,) = write(5, None, (*first, kept), (*first, kept))
    found = find(epoch(tmp_path, 6, (last,), ()), "keys", pl.Series([2, 1, 1], dtype=pl.UInt64), ["k"])
    assert found is not None
    assert found.select("k", "x").rows() == [("b", 6)]
    assert find(epoch(tmp_path, 6, (last,), ()), "keys", pl.Series([], dtype=pl.UInt64), ["k"]) is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_order_the_segments_have(seed: int) -> None:
    """Against the plain definition: segments that overlap in versions, keys that share a hash, several rows of a version, and none."""
    rng = Random(seed)
    keys = [(rng.randrange(1 + seed % 4 * 20), rng.choice("abc") if seed % 3 == 0 else "a") for _ in range(30)]
    segments = []
    for _ in range(rng.randrange(1, 6)):
        some = [(*rng.choice(keys), rng.randrange(8), rng.randrange(99)) for _ in range(rng.randrange(20))]
        segments.append(rows(*some).sort(HASH))
    together = pl.concat(segments)
    last = {
        key: max(v for h, k, v, *_ in together.rows() if (h, k) == key) for key in together.select(HASH, "k").rows()
    }
    wanted = [row for row in together.sort(HASH, maintain_order=True).rows() if row[2] == last[row[:2]]]
    found = newest(together, ["k"])
    assert sorted(found.rows()) == sorted(wanted)
    assert found[HASH].is_sorted()
