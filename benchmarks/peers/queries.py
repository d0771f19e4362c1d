"""The eight queries: what Springtide runs, and the same rows by plain Polars in one batch, which is the limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.cdr import joins
from benchmarks.clickstream import patterns
from benchmarks.peers.nexmark import AUCTION, BID, PERSON

DURATION = pl.col("end") - pl.col("start")
MANY, MOST = 100_000_000, 160_000_000
"""Records, where half a second is enough for ten million, and where a tenth of a second is enough for them in plain Polars."""
WINDOW = 10_000_000
"""Of NEXMark's tumbling windows, and the gap of its sessions, in microseconds."""


@dataclass(frozen=True)
class Query:
    """One query: what it reads, what it gives, and its two forms in Python."""

    kind: str
    """Calls, clicks or events."""
    columns: tuple[str, ...]
    """What the rows are compared by, without floats."""
    springtide: Callable[[Any, Any], st.Query]
    """Of a folder of files (that of `heavy-callers` and `district` also of a source), and a sink."""
    polars: Callable[[Path], pl.LazyFrame]
    floats: tuple[str, ...] = ()
    records: int = 10_000_000
    """So many that a run takes some seconds: a shorter one would measure how a system starts and ends."""


def slide(panes: pl.LazyFrame, key: str, size: int, every: int, *sums: str) -> pl.LazyFrame:
    """Add up the panes of each sliding window, in Polars."""
    windows = panes.sort(key, "pane").group_by_dynamic(
        "pane", every=f"{every}s", period=f"{size}s", offset=f"{every - size}s", group_by=key
    )
    return windows.agg(pl.col(*sums).sum()).rename({"pane": "window_start"})


# ── call records ──────────────────────────────────────────────────────────────────────────────────────────────────


def _windows(key: str, size: int, every: int, records: int = Query.records) -> Query:
    def springtide(data: Any, sink: Any) -> st.Query:
        calls = st.source("calls", st.parquet(data) if isinstance(data, Path) else data, ts="ts")
        windows = calls.map(duration=DURATION).aggregate(
            by=key,
            window=st.sliding(f"{size}s", every=f"{every}s"),
            n=st.count(),
            avg_duration=st.mean("duration"),
            name="windows",
        )
        return st.Query("windows", windows.to(sink))

    def polars(data: Path) -> pl.LazyFrame:
        pane = pl.col("ts").dt.truncate(f"{every}s").alias("pane")
        panes = (
            pl.scan_parquet(data / "*.parquet").group_by(key, pane).agg(n=pl.len().cast(pl.Int64), total=DURATION.sum())
        )
        sums = slide(panes, key, size, every, "n", "total")
        return sums.select(key, "window_start", "n", avg_duration=pl.col("total") / pl.col("n"))

    return Query("calls", (key, "window_start", "n"), springtide, polars, ("avg_duration",), records)


def _pairs_polars(data: Path) -> pl.LazyFrame:
    """Pair the calls of a caller in sorted blocks: a call meets those of its minute and of the two beside it."""
    minute = pl.col("ts").dt.truncate("1m").alias("minute")
    calls = pl.scan_parquet(data / "*.parquet").select("src", "start", "lat", "lon", "ts", minute)
    offsets = pl.LazyFrame({"by": [-60, 0, 60]}).select(by=pl.duration(seconds="by"))
    right = calls.join(offsets, how="cross").with_columns(minute=pl.col("minute") + pl.col("by")).drop("by")
    near = (pl.col("ts") - pl.col("ts_right")).abs() <= pl.duration(seconds=60)
    return (
        calls.join(right, on=["src", "minute"])
        .filter(near & (pl.col("start") < pl.col("start_right")))
        .with_columns(km=joins.KM)
        .filter(pl.col("km") < joins.NEAR)
        .select("src", "start", "start_right", "km")
    )


# ── NEXMark ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _events(data: Path) -> Any:
    return st.source("events", st.parquet(data), ts="ts")


def _bids(data: Path) -> Any:
    return (
        _events(data)
        .filter(pl.col("kind") == BID)
        .select(auction="bid_auction", bidder="bid_bidder", price="bid_price", at="ts")
    )


def _greatest(by: str, *columns: str) -> st.Aggregate:
    """Keep all rows with the greatest value of a column: senders and instances pass on those of theirs."""
    row, rows, most = pl.struct(*columns), pl.col("rows"), pl.col("most")
    return st.user_aggregate(
        init={"most": None, "rows": []},
        add={"most": pl.col(by).max(), "rows": row.filter(pl.col(by) == pl.col(by).max()).implode()},
        merge={"most": most.max(), "rows": rows.filter(most == most.max()).explode().implode()},
        finish=rows,
    )


def _unfolded(found: st.Stream, *columns: str) -> st.Stream:
    """Make a row of each that was kept."""
    return found.explode("rows").select(*(pl.col("rows").struct.field(name) for name in columns))


def _q5(data: Path, sink: Any) -> st.Query:
    counts = (
        _bids(data)
        .select("auction")
        .aggregate(by="auction", window=st.sliding("10s", every="2s"), n=st.count(), name="counts")
    )
    # The windows end every 2 s, and a count has the time of its window's end: the most of 2 s are those of one window.
    hot = counts.aggregate(window=st.tumbling("2s"), rows=_greatest("n", "window_start", "auction", "n"), name="hot")
    return st.Query("q5", _unfolded(hot, "window_start", "auction", "n").to(sink))


def _q5_polars(data: Path) -> pl.LazyFrame:
    bids = pl.scan_parquet(data / "*.parquet").filter(pl.col("kind") == BID)
    panes = bids.group_by(pl.col("bid_auction").alias("auction"), pl.col("ts").dt.truncate("2s").alias("pane")).agg(
        n=pl.len().cast(pl.Int64)
    )
    counts = slide(panes, "auction", 10, 2, "n")
    return counts.filter(pl.col("n") == pl.col("n").max().over("window_start")).select("window_start", "auction", "n")


def _q7(data: Path, sink: Any) -> st.Query:
    columns = ("auction", "bidder", "price", "at")
    highest = _bids(data).aggregate(window=st.tumbling("10s"), rows=_greatest("price", *columns), name="highest")
    return st.Query("q7", _unfolded(highest, *columns).to(sink))


def _q7_polars(data: Path) -> pl.LazyFrame:
    bids = pl.scan_parquet(data / "*.parquet").filter(pl.col("kind") == BID)
    bids = bids.select(auction="bid_auction", bidder="bid_bidder", price="bid_price", at="ts")
    start = pl.col("at").dt.truncate("10s").alias("window_start")
    highest = bids.group_by(start).agg(pl.col("price").max())
    return (
        bids.with_columns(start).join(highest, on=["window_start", "price"]).select("auction", "bidder", "price", "at")
    )


def _q8(data: Path, sink: Any) -> st.Query:
    seller = pl.col("auction_seller")
    people = (
        _events(data)
        .filter(pl.col("kind") != BID)
        .select(id=pl.coalesce("person_id", seller), person="person_name", sells=seller.is_not_null())
    )
    found = people.aggregate(
        by="id", window=st.tumbling("10s"), person=st.max("person"), sells=st.max("sells"), name="found"
    )
    new_sellers = found.filter(pl.col("person").is_not_null() & pl.col("sells"))
    return st.Query("q8", new_sellers.select("id", pl.col("person").alias("name"), "window_start").to(sink))


def _q8_polars(data: Path) -> pl.LazyFrame:
    events = pl.scan_parquet(data / "*.parquet").with_columns(window_start=pl.col("ts").dt.truncate("10s"))
    persons = events.filter(pl.col("kind") == PERSON).select("window_start", id="person_id", name="person_name")
    sellers = events.filter(pl.col("kind") == AUCTION).select("window_start", id="auction_seller")
    found = persons.unique().join(sellers.unique(), on=["id", "window_start"])
    return found.select("id", "name", "window_start")


def _q11(data: Path, sink: Any) -> st.Query:
    sessions = (
        _bids(data).select("bidder").aggregate(by="bidder", window=st.session("10s"), n=st.count(), name="sessions")
    )
    last = (pl.col("window_end") - pl.duration(microseconds=WINDOW)).alias("last_bid")
    return st.Query("q11", sessions.select("bidder", "n", pl.col("window_start").alias("first_bid"), last).to(sink))


def _q11_polars(data: Path) -> pl.LazyFrame:
    bids = pl.scan_parquet(data / "*.parquet").filter(pl.col("kind") == BID).select("ts", bidder="bid_bidder")
    rows = bids.sort("bidder", "ts")
    new = (pl.col("bidder") != pl.col("bidder").shift()) | (
        pl.col("ts") - pl.col("ts").shift() >= pl.duration(microseconds=WINDOW)
    )
    number = new.fill_null(True).cast(pl.Int64).cum_sum().alias("session")
    return (
        rows.with_columns(number)
        .group_by("session")
        .agg(
            pl.col("bidder").first(),
            n=pl.len().cast(pl.Int64),
            first_bid=pl.col("ts").first(),
            last_bid=pl.col("ts").last(),
        )
        .drop("session")
    )


QUERIES = {
    "heavy-callers": _windows("src", 3600, 60),
    "district": _windows("district", 60, 10, MANY),
    "cdr-join": Query("calls", ("src", "start", "start_right"), joins.query_to, _pairs_polars, ("km",)),
    "clickstream": Query(
        "clicks",
        ("window_start", "rank", "pattern", "count"),
        patterns.query_to,
        lambda data: patterns.plain_plan(data).rename({"len": "count"}),
    ),
    "q5": Query("events", ("window_start", "auction", "n"), _q5, _q5_polars, records=MANY),
    "q7": Query("events", ("auction", "bidder", "price", "at"), _q7, _q7_polars, records=MANY),
    "q8": Query("events", ("id", "name", "window_start"), _q8, _q8_polars, records=MOST),
    "q11": Query("events", ("bidder", "n", "first_bid", "last_bid"), _q11, _q11_polars, records=MANY),
}
