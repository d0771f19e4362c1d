"""Joins by time and by count, inner and left, equal keys and any predicate."""

from __future__ import annotations

from typing import Any

import polars as pl

import springtide as st
from springtide.testing import END, at, compare, idle, table

L = st.source("l", st.memory(schema={"ts": st.TIME, "k": pl.String, "a": pl.Int64}), ts="ts")
R = st.source("r", st.memory(schema={"ts": st.TIME, "k": pl.String, "b": pl.Int64}), ts="ts")


def inputs(left: str, right: str) -> dict[str, Any]:
    """Write both inputs as tables without their first lines."""
    return {"l": table(f"ts k a \n {left}"), "r": table(f"ts k b \n {right}")}


# ── by time ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pair_is_at_most_within_apart_on_either_side(rows_of: Any) -> None:
    """Within 5.

    time   0    5    10   15   16
    right  1         2    3    4
    left        ·         ·
                5        15          5 meets 0 and 10; 15 meets 10, 15 and 16
    """
    both = inputs("5s x 5 \n 15s x 15", "0s x 1 \n 10s x 2 \n 15s x 3 \n 16s x 4")
    expected = table("""
        ts   k  a   b
        5s   x  5   1
        10s  x  5   2
        15s  x  15  2
        15s  x  15  3
        16s  x  15  4
    """)
    compare(rows_of(L.join(R, on="k", within="5s"), both), expected)


def test_keys_must_be_equal_and_null_equals_nothing(rows_of: Any) -> None:
    both = inputs("1s x 1 \n 1s null 2 \n 1s y 3", "1s x 1 \n 1s null 2 \n 1s z 3")
    compare(rows_of(L.join(R, on="k", within="5s"), both), table("ts k a b \n 1s x 1 1"))


def test_columns_of_a_pair(rows_of: Any) -> None:
    """Keys with different names stay on both sides; names that are taken get the suffix; `where` sees the pair."""
    pairs = L.join(R, left_on="k", right_on="k", within="5s")
    assert list(pairs.schema) == ["ts", "k", "a", "b"]
    other = R.rename({"k": "key", "b": "a"})
    pairs = L.join(other, left_on="k", right_on="key", within="5s", where=pl.col("a") < pl.col("a_right"))
    both = inputs("1s x 1 \n 1s x 5", "2s x 3")
    compare(rows_of(pairs, both), table("ts k a key a_right \n 2s x 1 x 3"))


def test_where_sees_the_ts_of_the_pair(rows_of: Any) -> None:
    later = L.join(R, on="k", within="5s", where=pl.col("ts") == at("3s"))
    compare(rows_of(later, inputs("1s x 1 \n 3s x 2", "3s x 9 \n 2s x 8")), table("ts k a b \n 3s x 1 9 \n 3s x 2 9"))


def test_self_join_pairs_a_tuple_with_itself(rows_of: Any) -> None:
    """Both sides get every tuple: each pair comes in both directions, and each tuple meets itself."""
    pairs = L.join(L, on="k", within="1s").select("a", "a_right")
    found = rows_of(pairs, {"l": table("ts k a \n 1s x 1 \n 2s x 2 \n 4s x 3")})
    assert sorted(found.select("a", "a_right").rows()) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)]


def test_pairs_are_given_before_they_are_ready(rows_of: Any) -> None:
    """A pair is certain as soon as both are there, whatever the merged time."""
    both = inputs("100s x 1", "100s x 2")
    assert rows_of(L.join(R, on="k", within="1s"), both, bounded=False).height == 1
    waiting = L.join(R, on="k", within="1s").aggregate(window=st.last_n(1), n=st.count())
    assert rows_of(waiting, both, bounded=False).height == 0
    assert rows_of(waiting, both).height == 1


def test_left_join_gives_lone_tuples_when_that_is_certain(rows_of: Any) -> None:
    """1 has a partner at exactly 5 away; 2 has none and is given at 10 + 5; a null key is certain at once."""
    both = inputs("5s x 1 \n 10s y 2 \n 11s null 3", "10s x 7")
    expected = table("""
        ts   k     a  b
        10s  x     1  7
        15s  y     2  null
        11s  null  3  null
    """)
    compare(rows_of(L.join(R, on="k", within="5s", how="left"), both), expected)


def test_left_join_partner_that_where_refuses_does_not_count(rows_of: Any) -> None:
    left = L.join(R, on="k", within="5s", how="left", where=pl.col("b") > 5)
    compare(rows_of(left, inputs("1s x 1", "1s x 5")), table("ts k a b \n 6s x 1 null"))


def test_left_join_waits_until_no_partner_can_come(rows_of: Any) -> None:
    """l at 10, within 5: a partner at 15 may come until the time of the right side is past 15."""
    left = L.join(R, on="k", within="5s", how="left")
    for right, height in (([idle(to="15s")], 0), ([idle(to="15s1us")], 1), ([END], 1)):
        assert rows_of(left, {"l": table("ts k a \n 10s x 1"), "r": right}, bounded=False).height == height
    null_key = {"l": [{"ts": at("10s")}], "r": []}
    assert rows_of(left, null_key, bounded=False)["ts"].to_list() == [at("10s")]


# ── by count ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tuple_meets_the_last_n_of_its_key_before_it(rows_of: Any) -> None:
    """Last 2: the left tuple at 5 meets the rights 2 and 3, not 1, nor 4 of another key; the right 6 meets the left 5.

    time   1    2    3    4    5    6    7
    right  1x   2x   3x   4y        6x
    left                       5x        7x       7 meets 3 and 6
    """
    both = inputs("5s x 5 \n 7s x 7", "1s x 1 \n 2s x 2 \n 3s x 3 \n 4s y 4 \n 6s x 6")
    expected = table("""
        ts  k  a  b
        5s  x  5  2
        5s  x  5  3
        6s  x  5  6
        7s  x  7  3
        7s  x  7  6
    """)
    compare(rows_of(L.join(R, on="k", within=st.last_n(2)), both), expected)


def test_of_one_time_the_order_of_the_sources_decides(rows_of: Any) -> None:
    """Source l stands before source r: at one time the right tuple sees the left one, and pushes nothing out before."""
    both = inputs("1s x 1 \n 2s x 2", "1s x 1 \n 2s x 2")
    found = rows_of(L.join(R, on="k", within=st.last_n(1)), both)
    assert sorted(found.select("a", "b").rows()) == [(1, 1), (2, 1), (2, 2)]
    turned = rows_of(R.join(L, on="k", within=st.last_n(1)), both)
    assert sorted(turned.select("a", "b").rows()) == [(1, 1), (2, 1), (2, 2)]


def test_self_join_by_count_the_left_one_stands_before_the_right_one(rows_of: Any) -> None:
    """Each tuple is left, then right: the right one meets itself; the next left one meets the right one before."""
    pairs = L.join(L, on="k", within=st.last_n(1)).select("a", "a_right")
    found = rows_of(pairs, {"l": table("ts k a \n 1s x 1 \n 2s x 2")})
    assert sorted(found.select("a", "a_right").rows()) == [(1, 1), (2, 1), (2, 2)]


def test_only_ready_tuples_meet(rows_of: Any) -> None:
    pairs = L.join(R, on="k", within=st.last_n(5))
    both = inputs("1s x 1 \n 3s x 3", "2s x 2 \n 4s x 4")
    assert rows_of(pairs, both, bounded=False).select("a", "b").rows() == [(1, 2)]
    assert rows_of(pairs, both).height == 4 - 1 + 0 + 1


def test_left_join_by_count_gives_what_is_pushed_out(rows_of: Any) -> None:
    """Last 1, left: 1 is pushed out by 2 at 2 s; 2 meets the right one; 3 is there at the end, at the greatest ts of all.

    time   1    2    3    4    5    9
    left   1x   2x        3x             4y is alone from the beginning to the end
    right            r              z
    """
    both = inputs("1s x 1 \n 2s x 2 \n 4s x 3 \n 5s y 4 \n 6s null 5", "3s x 7 \n 9s z 8")
    expected = table("""
        ts  k     a  b
        2s  x     1  null
        3s  x     2  7
        4s  x     3  7
        9s  y     4  null
        6s  null  5  null
    """)
    compare(rows_of(L.join(R, on="k", within=st.last_n(1), how="left"), both), expected)


def test_left_join_by_count_at_the_end_counts_dummies_too(rows_of: Any) -> None:
    """The end comes after the last time that anybody heard of: nothing may be given before it any more."""
    lone = L.join(R, on="k", within=st.last_n(1), how="left")
    both = {"l": table("ts k a \n 1s x 1"), "r": [idle(to="30s")]}
    assert rows_of(lone, both)["ts"].to_list() == [at("30s")]
    assert rows_of(lone, both, bounded=False).height == 0


def test_a_duplicate_waits_for_its_own_partner(rows_of: Any) -> None:
    """The same tuple twice on the left: with the last 1, the first copy is pushed out by the second."""
    twice = L.union(L).join(R, on="k", within=st.last_n(1), how="left")
    both = inputs("1s x 1", "2s x 7")
    compare(rows_of(twice, both), table("ts k a b \n 1s x 1 null \n 2s x 1 7"))


# ── any predicate ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_theta_join_by_time(rows_of: Any) -> None:
    """SC-1, ST-6: no key at all; null is not true."""
    near = L.theta_join(R, (pl.col("a") - pl.col("b")).abs() <= 1, within="2s")
    both = inputs("1s x 10 \n 5s x 20 \n 6s x null", "2s y 11 \n 3s y 12 \n 4s y 10 \n 7s z 21")
    compare(rows_of(near, both), table("ts k a k_right b \n 2s x 10 y 11 \n 7s x 20 z 21"))


def test_theta_join_by_count_looks_at_the_last_n_of_all(rows_of: Any) -> None:
    """The last 1 of the other side, whether the predicate is true of it or not."""
    odd = L.theta_join(R, pl.col("b") % 2 == 1, within=st.last_n(1))
    both = inputs("2s x 1 \n 4s x 2", "1s y 1 \n 3s z 2")
    compare(rows_of(odd, both), table("ts k a k_right b \n 2s x 1 y 1"))


def test_a_join_of_joins(rows_of: Any) -> None:
    """Pairs are tuples like others: ts is the later one, and the content orders them."""
    pairs = L.join(R, on="k", within="5s")
    triples = pairs.join(L.select("k", c=pl.col("a")), on="k", within="5s")
    both = inputs("1s x 1 \n 4s x 2", "2s x 7")
    expected = table("""
        ts  k  a  b  c
        2s  x  1  7  1
        4s  x  1  7  2
        4s  x  2  7  1
        4s  x  2  7  2
    """)
    compare(rows_of(triples.select("k", "a", "b", "c"), both).select("ts", "k", "a", "b", "c"), expected)
