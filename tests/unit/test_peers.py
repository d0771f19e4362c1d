"""The queries that are measured beside Flink: both of their forms in Python give the same rows, and NEXMark's events are as published."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import springtide as st
from benchmarks import figures
from benchmarks.clickstream.data import requests
from benchmarks.peers import nexmark, ratios, table
from benchmarks.peers.queries import QUERIES
from benchmarks.peers.rows import compare, uniform
from springtide.runtime import inprocess
from springtide.runtime.engine import Options


def calls() -> pl.DataFrame:
    """Half an hour of calls of a few callers, many of them near each other."""
    number = pl.int_range(4_000)
    ts = 1_700_000_000_000_000 + number * 450_000
    return pl.select(
        src=(number * 7_919 % 13).cast(pl.String),
        start=ts // 1_000 - number * 104_729 % 600_000 - 1_000,
        end=ts // 1_000,
        district=(number * 31 % 17).cast(pl.Int32),
        lat=(number * 1_299_709 % 1_000) / 100,
        lon=(number * 15_485_863 % 1_000) / 100,
        ts=ts.cast(pl.Datetime("us", "UTC")),
    )


ROWS = {
    "calls": calls,
    "clicks": lambda: requests(6_000),
    "events": lambda: nexmark.events(0, 300_000).gather_every(7),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ROWS}
    for kind, folder in folders.items():
        rows = ROWS[kind]()
        for number, part in enumerate(rows.iter_slices(-(-rows.height // 4))):
            part.write_parquet(folder / f"{number}.parquet")
    return folders


@pytest.mark.parametrize("name", QUERIES)
def test_both_forms_give_the_same_rows(name: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    query = QUERIES[name]
    sink = st.memory_sink()
    plan = query.springtide(inputs[query.kind], sink).plan(buckets=16)
    inprocess.run(plan, tmp_path, Options(2, rows_per_epoch=20_000))
    wanted = uniform(query, query.polars(inputs[query.kind]).collect())
    assert compare(query, name, uniform(query, sink.rows()), wanted) >= 3


def test_a_row_that_differs_is_found() -> None:
    query = QUERIES["district"]
    rows = pl.DataFrame({"district": [1, 2], "window_start": [0, 0], "n": [3, 4], "avg_duration": [1.5, 2.5]})
    same = uniform(query, rows)
    assert compare(query, "district", same, uniform(query, rows.reverse())) == 2
    for other in (
        rows.with_columns(n=pl.Series([3, 5])),
        rows.with_columns(avg_duration=pl.Series([1.5, 2.6])),
        rows.head(1),
        pl.concat([rows, rows.head(1)]),
    ):
        with pytest.raises(AssertionError):
            compare(query, "district", uniform(query, other), same)


def test_events_are_the_same_every_time_and_others_with_another_seed() -> None:
    assert nexmark.events(5_000, 1_000).equals(nexmark.events(5_000, 1_000))
    assert not nexmark.events(5_000, 1_000).equals(nexmark.events(5_000, 1_000, seed=1))


def test_events_have_the_published_proportions() -> None:
    events = nexmark.events(100_000, 100_000)
    kinds = dict(events.group_by("kind").len().rows())
    assert kinds == {nexmark.PERSON: 2_000, nexmark.AUCTION: 6_000, nexmark.BID: 92_000}
    bids, auctions = (events.filter(kind=kind) for kind in (nexmark.BID, nexmark.AUCTION))
    number = events.with_row_index("number").filter(kind=nexmark.BID)["number"].cast(pl.Int64) + 100_000
    last_auction = number // 50 * 3 + 2
    is_hot = bids["bid_auction"] == nexmark.FIRST_ID + last_auction // 100 * 100
    assert 0.49 < is_hot.mean() < 0.52
    behind = nexmark.FIRST_ID + last_auction - bids["bid_auction"]
    assert behind.min() == -nexmark.LEAD
    assert behind.max() == nexmark.IN_FLIGHT
    is_hot_bidder = bids["bid_bidder"] == nexmark.FIRST_ID + number // 50 // 100 * 100 + 1
    assert 0.74 < is_hot_bidder.mean() < 0.76
    person = nexmark.FIRST_ID + auctions.with_row_index("number")["number"].cast(pl.Int64) // 3 + 2_000
    assert 0.73 < (auctions["auction_seller"] == person // 100 * 100).mean() < 0.77
    assert 100 <= bids["bid_price"].min() < 110
    assert 9e7 < bids["bid_price"].max() <= 1e8
    assert 90_000 < bids["bid_price"].median() < 110_000
    assert events["ts"].is_sorted()
    assert (events["ts"].max() - events["ts"].min()).total_seconds() == pytest.approx(10, abs=0.01)


def test_ids_of_persons_and_auctions_go_up_one_by_one() -> None:
    events = nexmark.events(0, 10_000)
    assert events["person_id"].drop_nulls().to_list() == list(range(1_000, 1_200))
    assert events["auction_id"].drop_nulls().to_list() == list(range(1_000, 1_600))
    assert events["bid_auction"].drop_nulls().min() >= 1_000


def spread(median: float) -> dict[str, float]:
    return {"min": median / 2, "median": median, "max": median * 2, "n": 3}


def test_ours_over_the_better_of_each_of_their_forms() -> None:
    rates = {
        "springtide": spread(3e6),
        "flink-sql-heap": spread(2e5),
        "flink-sql-rocksdb": spread(5e4),
        "flink-hand-heap": spread(1e6),
        "flink-hand-rocksdb": {"below": 9e3},
        "polars": spread(6e6),
    }
    found = ratios.of_query(rates)
    assert found == {
        "flink_best": "flink-hand-heap",
        "ratio_vs_flink": 3,
        "ratio_vs_flink_sql": 15,
        "ratio_vs_flink_hand": 3,
        "share_of_limit": 0.5,
    }
    queries = {"q5": found, "q7": {"ratio_vs_flink": 2.0, "share_of_limit": 0.7}, "q8": {}}
    over = {"worst_ratio_vs_flink": 2, "median_ratio_vs_flink": 2.5}
    assert ratios.of_all(queries) == {**over, "share_of_limit": 0.5}
    page = table.section(
        {"flink": "2.3.0", "queries": {"q5": found | {"records": 10_000_000, "rates": rates}}}, figures.spread
    )
    row = "| `q5`, 10 M records | 3 M (1.5 M–6 M) | 200 k (100 k–400 k) | 50 k (25 k–100 k) | 1 M (500 k–2 M) | below 9,000 |  |"
    assert row in page
    assert page.splitlines()[-3].endswith("| 15 × | 3 × | 50% |")


def test_without_ours_there_are_no_ratios() -> None:
    assert ratios.of_query({"polars": spread(1e6)}) == {}
    assert ratios.of_all({"q5": {}}) == {}
