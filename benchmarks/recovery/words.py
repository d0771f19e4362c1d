"""Windowed word frequency, as SEEP has it: fragments of sentences of 140 bytes, their words, how often each came in the last 30 seconds."""

import functools
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st

WINDOW = 30
"""Seconds; there is one every second."""
LENGTH = 140
WORDS = 20
"""In a fragment: 20 of six letters, 19 spaces and a full stop."""
_POOL = 1 << 14
"""Fragments that differ; they come again and again."""
_BEGIN = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())


@functools.lru_cache(maxsize=2)
def _numbers(dictionary: int) -> np.ndarray:
    """Draw the words of all fragments: some are common and most are not, as in any text."""
    drawn = np.random.default_rng(7).zipf(1.1, _POOL * WORDS)
    return (drawn * 2654435761 % dictionary).reshape(_POOL, WORDS)


@functools.lru_cache(maxsize=2)
def _fragments(dictionary: int) -> pl.Series:
    words = pl.Series([f"w{i:05d}" for i in range(dictionary)])
    drawn = pl.DataFrame({f"{i:02d}": words.gather(_numbers(dictionary)[:, i]) for i in range(WORDS)})
    made = drawn.select((pl.concat_str(pl.all(), separator=" ") + ".").alias("text"))["text"]
    assert (made.str.len_bytes() == LENGTH).all()
    return made


def rows(rate: int, dictionary: int, stream: int, first: int, count: int) -> pl.DataFrame:
    """Make fragments, evenly spaced by time."""
    number = np.arange(first, first + count, dtype=np.int64)
    ts = _BEGIN * 1_000_000 + number * 1_000_000 // rate
    return pl.DataFrame({"text": _fragments(dictionary).gather(number % _POOL), "ts": pl.Series(ts).cast(st.TIME)})


def fragments(rate: int, dictionary: int, *, ahead: float = 0.0) -> Any:
    """Make fragments at a rate, as if the first had come some seconds ago: a query that starts now catches up with these first."""
    start = datetime.fromtimestamp(time.time() - ahead, UTC)
    return st.generate(functools.partial(rows, rate, dictionary), rate=float(rate), start=start)


def words_of(stream: st.Stream) -> st.Stream:
    """Split fragments into words."""
    split = stream.select("ts", word=pl.col("text").str.head(LENGTH - 1).str.split(" "), name="splitter")
    return split.explode("word", name="words")


def frequencies(source: Any, out: Path) -> st.Query:
    """Count words over the window."""
    counts = words_of(st.source("fragments", source, ts="ts")).aggregate(
        by="word", window=st.sliding(f"{WINDOW}s", every="1s"), n=st.count(), name="counter"
    )
    return st.Query("word-frequency", counts.to(st.parquet_sink(out)))


def wrong(out: Path, rate: int, dictionary: int) -> tuple[int, int]:
    """Compare what was written with counts of our own: how many rows are wrong, missing or there twice, and how many there should be."""
    found = pl.read_parquet(out / "*.parquet", columns=["window_end", "word", "n"])
    second = (found["window_end"].to_physical() // 1_000_000 - _BEGIN).to_numpy()
    last = int(second.max())  # type: ignore[arg-type]
    right = np.zeros((last + 1, dictionary), dtype=np.int64)
    numbers = _numbers(dictionary)
    for n in range(last):
        drawn = numbers[np.arange(n * rate, (n + 1) * rate) % _POOL]
        right[n + 1] = right[n] + np.bincount(drawn.ravel(), minlength=dictionary)
    right[WINDOW:] -= right[: max(last + 1 - WINDOW, 0)].copy()
    written = np.zeros_like(right)
    np.add.at(written, (second, found["word"].str.tail(5).cast(pl.Int64).to_numpy()), found["n"].to_numpy())
    wanted = int(np.count_nonzero(right))
    return int(np.count_nonzero(right != written)) + abs(found.height - wanted), wanted
