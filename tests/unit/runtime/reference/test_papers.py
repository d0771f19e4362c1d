"""The papers' own examples, by name."""

from __future__ import annotations

from typing import Any

import polars as pl

import springtide as st
from springtide.testing import at, compare, table


def test_streamcloud_fig_4_and_5_cartesian_product(rows_of: Any) -> None:
    """SC-1: two maps and a Cartesian product of 2 s. The figure's input is not in the text; this one does what it says.

        time     0    1    2    3    4    5    6    7
        left     0              1    2              3
        right         A    B    C              D

    "0" is purged when "C" arrives (3 − 0 > 2), "A" when "2" arrives (4 − 1 > 2), "1" when "D" arrives (6 − 3 > 2).
    Odd numbers meet letters other than A: (1, B), (1, C), (3, D).
    """
    numbers = st.source("numbers", st.memory(schema={"ts": st.TIME, "number": pl.Int64}), ts="ts")
    letters = st.source("letters", st.memory(schema={"ts": st.TIME, "letter": pl.String}), ts="ts")
    product = numbers.map(number=pl.col("number") // 2, name="M_l").theta_join(
        letters.map(letter=pl.col("letter").str.to_uppercase(), name="M_r"),
        (pl.col("number") % 2 == 1) & (pl.col("letter") != "A"),
        within="2s",
    )
    inputs = {
        "numbers": table("""
            ts  number
            0s  1
            3s  2
            4s  5
            7s  6
        """),
        "letters": table("""
            ts  letter
            1s  a
            2s  b
            3s  c
            6s  d
        """),
    }
    expected = table("""
        ts  number  letter
        3s  1       B
        3s  1       C
        7s  3       D
    """)
    compare(rows_of(product, inputs), expected)


def test_streamcloud_fig_9_windows_of_size_6_and_advance_2(rows_of: Any) -> None:
    """SC-2: the windows that old and new owner share out between them in fig. 9.

    time     -4  -2   0   2   4   6   8  10  12  14
    tuples            T0T1  T3T4  T6    T9            (T3 carries the time 3, and so on)
    windows   |-----------|
                  |-----------|
                      |-----------|                   the last that starts before startTS = 1 ends at endTS = 6
                          |-----------|
                              |-----------|
                                  |-----------|
                                      |-----------|
    """
    tuples = st.source("tuples", st.memory(schema={"ts": st.TIME, "t": pl.String}), ts="ts")
    windows = tuples.aggregate(window=st.sliding("6s", every="2s"), n=st.count(), t=st.collect("t"))
    expected = table("""
        window_start  window_end  n  t
        -4s           2s          2  ["T0","T1"]
        -2s           4s          3  ["T0","T1","T3"]
        0s            6s          4  ["T0","T1","T3","T4"]
        2s            8s          3  ["T3","T4","T6"]
        4s            10s         3  ["T4","T6","T9"]
        6s            12s         2  ["T6","T9"]
        8s            14s         1  ["T9"]
    """)
    rows = [{"ts": at(f"{i}s"), "t": f"T{i}"} for i in (0, 1, 3, 4, 6, 9)]
    compare(rows_of(windows, {"tuples": rows}).drop("ts"), expected)


def test_seep_fig_2_word_count(rows_of: Any) -> None:
    """SE-1: a word splitter and word counts per minute: "first", "set", "second", "set"."""
    lines = st.source("lines", st.memory(schema={"ts": st.TIME, "text": pl.String}), ts="ts")
    words = lines.map(word=pl.col("text").str.split(" ")).explode("word")
    counts = words.aggregate(by="word", window=st.tumbling("1m"), n=st.count())
    rows = [{"ts": at("1s"), "text": "first set"}, {"ts": at("3s"), "text": "second set"}]
    found = rows_of(counts, {"lines": rows})
    assert dict(found.select("word", "n").rows()) == {"first": 1, "second": 1, "set": 2}
    assert found["window_end"].unique().to_list() == [at("1m")]


def test_stretch_section_4_3_scalejoin_band_predicate(rows_of: Any) -> None:
    """ST-6: R(x, y) ⋈ S(a, b) with both differences at most 10, each pair compared once in a window of time.

    time   0          5          10         15
    R      r0(10,10)             r1(30,30)
    S                 s0(20,0)              s1(35,41)
           |r0−s0| = (10,10) yes    |r1−s0| = (10,30) no    |r1−s1| = (5,11) no    r0, s1 too far apart in time
    """
    left = st.source("r", st.memory(schema={"ts": st.TIME, "x": pl.Int64, "y": pl.Int64}), ts="ts")
    right = st.source("s", st.memory(schema={"ts": st.TIME, "a": pl.Int64, "b": pl.Int64}), ts="ts")
    band = ((pl.col("x") - pl.col("a")).abs() <= 10) & ((pl.col("y") - pl.col("b")).abs() <= 10)
    inputs = {
        "r": table("ts x y \n 0s 10 10 \n 10s 30 30"),
        "s": table("ts a b \n 5s 20 0 \n 15s 35 41"),
    }
    compare(rows_of(left.theta_join(right, band, within="10s"), inputs), table("ts x y a b \n 5s 10 10 20 0"))
