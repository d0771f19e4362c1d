"""A stage that Spark runs again: its readers have what one attempt sent, or what the other did, and no row is lost or doubled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from unittest.mock import patch

import polars as pl
import pytest

import springtide as st
from springtide.exchange.routing import Numbering
from springtide.operators import chunks
from springtide.runtime import inprocess, storage
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.testing import compare
from tests.properties.retries import Retries

EPOCH = datetime(2024, 5, 1, tzinfo=UTC)
SCHEMA = {"ts": st.TIME, "k": pl.Int64, "x": pl.Int64}


def _calls() -> st.Stream:
    rows = [(EPOCH + timedelta(seconds=i % 7), i % 21, i) for i in range(90)]
    streams = {name: pl.DataFrame(rows[i::3], schema=SCHEMA, orient="row").sort("ts") for i, name in enumerate("abc")}
    return st.source("calls", st.memory(streams, schema=SCHEMA), ts="ts")


BEHIND = {
    "an aggregate": lambda: _calls().aggregate(by="k", window=st.tumbling("10s"), x=st.sum("x")),
    "an aggregate with equal rows": lambda: (
        _calls().aggregate(by="k", window=st.tumbling("10s"), x=st.count()).select("x")
    ),
    "a join": lambda: (calls := _calls()).join(calls, on="x", within="1s").select("k", "x"),
}


@pytest.mark.parametrize("within", ["10s", st.last_n(30)], ids=["time", "count"])
@pytest.mark.parametrize("behind", BEHIND)
def test_a_theta_join_behind_a_stateful_step_has_every_pair_once(
    behind: str, within: st.Window, tmp_path: Path
) -> None:
    """Tuples were distributed by their number in an order that depended on which blob came first."""
    stream, sink = BEHIND[behind](), st.memory_sink()
    pairs = stream.theta_join(
        stream, pl.lit(True), within=within, routing="grid" if within == "10s" else None, suffix="_2"
    )
    query = st.Query("q", pairs.to(sink, name="out"))
    with patch.object(inprocess, "execute", Retries(Random(1)).execute), patch.object(chunks, "PIECE", 50):
        inprocess.run(query.plan(buckets=16), tmp_path / "ckpt", Options(4))
    compare(sink.rows(), query.run_reference().rows("out"))


@pytest.mark.parametrize("rows", ["whole", "pieces"])
def test_the_order_in_which_tuples_came_does_not_decide_their_numbers(rows: str) -> None:
    frame = pl.DataFrame({"ts": [1] * 50, "x": [i % 7 for i in range(50)]})
    numbering = Numbering(3, rows)  # type: ignore[arg-type]
    one, other = (
        f.with_columns(numbering.numbers(["ts", "x"]).alias("n"))
        for f in (frame, frame.sample(fraction=1, shuffle=True))
    )
    assert sorted(one.rows()) == sorted(other.rows())
    if rows == "whole":
        assert sorted(one["n"]) == list(range(4, 54))


@pytest.mark.parametrize("durability", [Durability(), Durability("never")], ids=["every epoch", "never"])
def test_segments_of_attempts_that_did_not_count_are_removed_while_the_query_runs(
    durability: Durability, tmp_path: Path
) -> None:
    """They stayed until the next start: 92 files, of which 5 were named."""
    query = st.Query("q", _calls().aggregate(by="k", window=st.tumbling("4s"), x=st.sum("x")).to(st.memory_sink()))
    most = 0

    def between(engine: Engine) -> bool:
        nonlocal most
        tiers, kept = engine.storage.tiers, engine.storage.kept
        named = set().union(*(m.files() for m in kept))
        places = [Path(p) for p in (tiers.shared_memory, tiers.root) if p]
        there = {p.relative_to(place).as_posix() for place in places for p in place.glob("state/*/*.arrow")}
        assert named <= there
        left = there - named - engine.storage.leaving
        most = max(most, len(left))
        assert all(f"/{engine.manifest.epoch:09d}-" in file for file in left)
        return True

    with patch.object(inprocess, "execute", Retries(Random(1)).execute), patch.object(storage, "SWEPT", 1):
        inprocess.run(query.plan(buckets=16), tmp_path / "ckpt", Options(3, 8, durability=durability), between=between)
    assert most  # there was something to remove
