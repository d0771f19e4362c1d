"""Session → last 5 pages → top-20 patterns of each minute (SM-10), on two cores.

The StreamMine3G paper reports 160,000 events per second on a node of 8 cores. The rate of a run is that of all epochs after the first, with
the last one, which closes the open windows; one whole run goes before, as a warm-up. The rows are compared with those of a plain Polars computation
over all events at once, which is shown beside for what it is: no stream, no state, no checkpoint, all of the machine's memory.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.clickstream.data import FILES, ROWS_PER_FILE, make
from benchmarks.measure import DATA, result, say, scratch, session, summary

RUNS = 5
PATTERN = 5
PAGE = pl.col("page").str.to_lowercase().str.strip_suffix(".html")
IS_PAGE = ~pl.col("page").str.ends_with(".png")


def main(files: str = str(FILES), runs: str = str(RUNS)) -> None:
    data = make(DATA / f"clickstream-{files}", int(files))
    spark = session()
    rates: list[float] = []
    with scratch() as folder:
        for i in range(int(runs) + 1):
            measured = _springtide(spark, data, folder / f"{i}")
            say(f"springtide: {measured / 1e6:.2f} M events/s{'' if i else ' (warm-up)'}")
            rates += [measured] if i else []
        begun = time.perf_counter()
        expected = plain(data)
        seconds = time.perf_counter() - begun
        rows = same_rows(folder / "0" / "out", expected)
    events = int(files) * ROWS_PER_FILE
    result(
        "clickstream",
        events_per_s=statistics.median(rates),
        springtide=summary(rates),
        plain_polars_events_per_s=events / seconds,
        events=events,
        rows_compared=rows,
    )


def query_to(data: Path, sink: Any) -> st.Query:
    """Rank the runs of five pages of each minute."""
    return query_of(st.source("clicks", st.parquet(data), ts="ts"), sink)


def query_of(clicks: st.Stream, sink: Any, work: pl.Expr | None = None) -> st.Query:
    """Say it of any stream of clicks; `work` is done for every pattern, and gives it back."""
    patterns = (
        clicks.map(page=PAGE)
        .filter(IS_PAGE)
        .aggregate(by="session", window=st.last_n(PATTERN), pattern=st.collect("page"), name="last")
        .map(pattern=pl.col("pattern").list.join(" > "))
    )
    if work is not None:
        patterns = patterns.map(pattern=work)
    top = patterns.top_k(20, "pattern", window=st.tumbling("1m"), name="top")
    return st.Query("clickstream", top.to(sink))


def _springtide(spark: Any, data: Path, folder: Path) -> float:
    query = query_to(data, st.parquet_sink(folder / "out"))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=4 * ROWS_PER_FILE)
    run.wait()
    first, *epochs = run.metrics()
    return sum(epoch["rows"] for epoch in epochs) / (epochs[-1]["at"] - first["at"])  # type: ignore[no-any-return]


def plain(data: Path) -> pl.DataFrame:
    """Compute the same rows at once, with Polars."""
    return plain_plan(data).collect()


def plain_plan(data: Path) -> pl.LazyFrame:
    """Say how Polars computes them."""
    rows = pl.scan_parquet(data / "*.parquet").with_columns(page=PAGE).filter(IS_PAGE).select("session", "page", "ts")
    rows = rows.sort("ts", maintain_order=True).collect().sort("session", maintain_order=True).lazy()
    pages = [pl.col("page").shift(PATTERN - 1 - i) for i in range(PATTERN)]
    whole = pl.col("session") == pl.col("session").shift(PATTERN - 1)
    patterns = rows.select("ts", whole.alias("whole"), pl.concat_str(pages, separator=" > ").alias("pattern"))
    counts = patterns.filter("whole").group_by(pl.col("ts").dt.truncate("1m").alias("window_start"), "pattern").len()
    ranked = counts.sort(["window_start", "len", "pattern"], descending=[False, True, False]).with_columns(
        rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("window_start")
    )
    return ranked.filter(pl.col("rank") <= 20)


def same_rows(ours: Path, expected: pl.DataFrame) -> int:
    columns = ["window_start", "rank", "pattern", "count"]
    given = pl.read_parquet(ours / "*.parquet").select(columns).sort("window_start", "rank")
    wanted = expected.select("window_start", "rank", "pattern", pl.col("len").cast(pl.Int64).alias("count"))
    if not given.equals(wanted.sort("window_start", "rank")):
        raise AssertionError(f"the rows differ:\n{given}\n{wanted}")
    say(f"{given.height} rows are the same")
    return given.height
