"""Which language versions of Wikipedia are visited most, every 30 seconds (SE-9), on two cores.

SEEP's map/reduce query: a stateless map that takes away what nobody needs, a stateful reduce that counts, and a ranking of what all reducers have. The paper
reaches 550,000 tuples/s on 50 VMs, and loses tuples until it has enough of them. Page views are made up, with the columns of Wikipedia's own traces and
languages as unequal as there.

    closed   10 M page views in Parquet files, as fast as it goes; the rows are compared with those of plain Polars
    open     page views that come twice as fast as they can be processed: throughput stays, and what waits is bounded and reported; when so many wait, the
             source holds the others back. Throughput and backlog are measured there; rows are compared in the closed form
"""

import statistics
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import DATA, memory, result, say, scratch, session, summary

FILES, ROWS_PER_FILE = 20, 500_000
RUNS = 5
SOURCES = 18
"""Physical streams, as in the paper."""
LANGUAGES = 280
PER_SECOND = 100_000
"""In event time."""
WINDOW, K = "30s", 10
MOST_WAITING = 8_000_000
OVERLOAD_SECONDS = 30.0
_BEGIN = 1_700_000_010_000_000


@dataclass(frozen=True)
class PageViews:
    """Makes page views: the same for a stream and a position every time."""

    streams: int

    def __call__(self, stream: int, first: int, count: int) -> pl.DataFrame:
        """Make `count` of them of a physical stream, from position `first` on."""
        place = np.arange(first, first + count, dtype=np.int64)
        mixed = (place * self.streams + stream).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        share = (mixed >> np.uint64(11)).astype(np.float64) / 2**53
        language = np.minimum((LANGUAGES**share - 1), LANGUAGES - 1).astype(np.int64)  # frequent ones far more often
        when = _BEGIN + (place * self.streams + stream) * (1_000_000 // PER_SECOND)
        return pl.DataFrame(
            {
                "project": self._projects.gather(language),
                "page": self._pages.gather((mixed % np.uint64(1000)).astype(np.int64)),
                "views": pl.Series((mixed % np.uint64(4)).astype(np.int64) + 1),
                "bytes": pl.Series((mixed % np.uint64(90_000)).astype(np.int64)),
                "ts": pl.Series(when).cast(st.TIME),
            }
        )

    @cached_property
    def _projects(self) -> pl.Series:
        return pl.Series(
            [f"{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}{'' if i < 26 * 26 else i}.m" for i in range(LANGUAGES)]
        )

    @cached_property
    def _pages(self) -> pl.Series:
        return pl.Series([f"Special:Article_{i:04d}" for i in range(1000)])


def main(files: str = str(FILES), runs: str = str(RUNS)) -> None:
    data = _make(DATA / f"topk-{files}", int(files))
    spark = session()
    with scratch() as folder:
        rates = []
        for i in range(int(runs) + 1):
            source = st.parquet(data)
            rates.append(_closed(spark, source, folder / f"{i}"))
            say(f"closed: {rates[-1] / 1e6:.2f} M page views/s{'' if i else ' (warm-up)'}")
        begun = time.perf_counter()
        expected = _plain(data)
        seconds = time.perf_counter() - begun
        rows = _same_rows(folder / "0" / "out", expected)
        opened = _open(spark, folder)
    result(
        "topk",
        events_per_s=statistics.median(rates[1:]),
        springtide=summary(rates[1:]),
        plain_polars_events_per_s=int(files) * ROWS_PER_FILE / seconds,
        rows_compared=rows,
        **opened,
        paper_events_per_s=550_000,
    )


def query_of(source: Any, out: Path) -> st.Query:
    """Rank the language versions."""
    views = st.source("views", source, ts="ts")
    visits = views.select("views", language=pl.col("project").str.split(".").list.first(), name="map")
    top = visits.top_k(K, "language", window=st.tumbling(WINDOW), weight="views", name="reduce")
    return st.Query("topk", top.to(st.parquet_sink(out)))


def _closed(spark: Any, source: Any, folder: Path) -> float:
    run = query_of(source, folder / "out").start(
        spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=4 * ROWS_PER_FILE
    )
    run.wait()
    first, *epochs = run.metrics()
    return sum(epoch["rows"] for epoch in epochs) / (epochs[-1]["at"] - first["at"])  # type: ignore[no-any-return]


def _open(spark: Any, folder: Path) -> dict[str, Any]:
    """Take made-up page views as fast as it goes, then let them come twice as fast."""
    make = PageViews(SOURCES)
    total = 30_000_000
    able = _closed(spark, st.generate(make, rate=None, streams=SOURCES, total=total), folder / "able")
    say(f"open: {able / 1e6:.2f} M page views/s can be processed")
    source = st.generate(make, rate=2 * able, streams=SOURCES, max_backlog=MOST_WAITING)
    run = query_of(source, folder / "over" / "out").start(
        spark, checkpoint=folder / "over" / "checkpoint", instances=2, rows_per_epoch=4 * ROWS_PER_FILE
    )
    time.sleep(OVERLOAD_SECONDS)
    bytes_used = memory()
    run.stop()
    first, *epochs = run.metrics()
    rate = sum(e["rows"] for e in epochs) / (epochs[-1]["at"] - first["at"])
    waiting = [e["backlog"] for e in run.metrics()]
    say(f"open: {rate / 1e6:.2f} M page views/s under twice the load, at most {max(waiting):,} waiting")
    return {
        "open_able_per_s": able,
        "open_overloaded_per_s": rate,
        "open_ratio": rate / able,
        "open_most_waiting": max(waiting),
        "open_memory_gb": bytes_used / 2**30,
    }


def _make(folder: Path, files: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    make = PageViews(1)
    for number in range(files):
        path = folder / f"{number:03d}.parquet"
        if not path.exists():
            rows = make(0, number * ROWS_PER_FILE, ROWS_PER_FILE)
            rows.write_parquet(path.with_suffix(".partial"), row_group_size=125_000)
            path.with_suffix(".partial").rename(path)
    return folder


def _plain(data: Path) -> pl.DataFrame:
    """Compute the same rows at once, with Polars."""
    language = pl.col("project").str.split(".").list.first().alias("language")
    window = pl.col("ts").dt.truncate(WINDOW).alias("window_start")
    counts = pl.scan_parquet(data / "*.parquet").group_by(window, language).agg(count=pl.col("views").sum())
    ranked = counts.sort(["window_start", "count", "language"], descending=[False, True, False])
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("window_start")
    return ranked.with_columns(rank=rank).filter(pl.col("rank") <= K).collect()


def _same_rows(ours: Path, expected: pl.DataFrame) -> int:
    columns = ["window_start", "rank", "language", "count"]
    given = pl.read_parquet(ours / "*.parquet").select(columns).sort("window_start", "rank")
    if not given.equals(expected.select(columns).sort("window_start", "rank")):
        raise AssertionError(f"the rows differ:\n{given}\n{expected}")
    say(f"{given.height} rows are the same")
    return given.height
