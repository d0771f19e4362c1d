"""Steps that are added to a running query and begin with the history of their sources (SM-3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from springtide.runtime.backfilling import Backfill, history_of, plan_of
from springtide.runtime.inprocess import execute
from springtide.state.accounts import imbalances
from springtide.state.verifying import verify
from tests.unit.runtime.test_replacing import Running, counted
from tests.unit.runtime.test_replacing import running as running


def begun(r: Running, query: Callable[[Running], st.Query], history: Any = True) -> tuple[Any, Backfill]:
    plan = query(r).plan(buckets=8)
    names = history_of(r.engine.plan, plan, history)
    part = plan_of(plan, names)
    return plan, r.engine.backfill(names, plan, part, lambda epoch: execute(part, epoch))


def swap(r: Running, query: Callable[[Running], st.Query], history: Any = True) -> None:
    plan, backfill = begun(r, query, history)
    r.engine.replace(plan, lambda epoch: execute(plan, epoch), None, backfill)
    assert not list(imbalances(r.engine.manifest.accounts))
    files = {f.name for f in (r.root / "state").rglob("-*.arrow")}
    assert files == {Path(s.file).name for s in r.engine.manifest.segments() if s.epoch < 0}, "nothing else is left"


def more(window: Any = None, **options: Any) -> Callable[[Running], st.Query]:
    """Make a form with one step more."""

    def query(r: Running) -> st.Query:
        rows = r.source("feed")
        counts = rows.aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
        twice = rows.filter(pl.col("k") != "x").aggregate(
            by="k", window=window or st.tumbling("20us"), n=st.count(), name="twice"
        )
        return st.Query("swapped", counts.to(r.sink("out"), name="out"), twice.to(r.sink("long"), name="long"))

    return query


def test_a_window_that_is_open_has_what_came_before(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1), ("x", 2), ("b", 12), ("a", 25), ("a", 26))
    swap(r, more())
    r.add("feed", ("a", 31), ("a", 45))
    r.end()
    assert r.rows("long", "k", "window_start", "n") == [("a", 20, 3), ("a", 40, 1)], "the window up to 20 µs was over"
    assert any("twice begins with the history of feed (5 rows)" in note for note in r.notes)
    assert not verify(r.root).lost


def test_without_history_it_begins_with_nothing(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 25), ("a", 26))
    r.swap(more())
    r.add("feed", ("a", 31))
    r.end()
    assert r.rows("long", "k", "n") == [("a", 1)]
