"""Another form of a query in the place of the one that runs: what is taken over, what is refused, what is taken back (SM-3)."""

from __future__ import annotations

import fcntl
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Owner, Publication, Sink, Writer
from springtide.elastic.settings import Elastic
from springtide.runtime import epochs as epochs_module
from springtide.runtime.engine import Engine, Options
from springtide.runtime.failpoints import PLACES
from springtide.runtime.identity import begin_from
from springtide.runtime.inprocess import execute
from springtide.state.accounts import imbalances
from springtide.state.answers import read_answer
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.state.copying import restore
from springtide.state.errors import AnotherFormError, CheckpointError
from springtide.state.manifest import Manifest
from springtide.state.savepoints import release, savepoints
from springtide.state.verifying import verify
from springtide.testing import compare
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.runtime import swapping
from tests.unit.runtime.crashing import write_input
from tests.unit.runtime.test_engine import Feed
from tests.unit.runtime.test_inprocess import PROCESSES

Rows = list[tuple[str, int]]


class Running:
    """A query at work whose form the test replaces; sources and sinks are kept by name."""

    def __init__(self, root: Path | str, query: Callable[[Running], st.Query], options: Options | None = None) -> None:
        self.root, self.options = root, options or Options(2)
        self.feeds: dict[str, Feed] = {}
        self.sinks: dict[str, Any] = {}
        self.engine = self.start(query)

    def start(self, query: Callable[[Running], st.Query]) -> Engine:
        plan = query(self).plan(buckets=8)
        checkpoint = self.options.durability.checkpoint(self.root)
        self.engine = Engine(plan, checkpoint, lambda epoch: execute(plan, epoch), self.options)
        self.engine.begin()
        return self.engine

    def restart(self, query: Callable[[Running], st.Query]) -> None:
        self.engine.close()
        self.start(query)

    def swap(self, query: Callable[[Running], st.Query], elastic: Elastic | None = None) -> None:
        plan = query(self).plan(buckets=8)
        self.engine.replace(plan, lambda epoch: execute(plan, epoch), elastic)
        assert not list(imbalances(self.engine.manifest.accounts))

    def source(self, name: str, **more: Any) -> st.Stream:
        feed = self.feeds.setdefault(name, Feed())
        feed.rows.setdefault("0", [])
        return st.source(name, feed, ts="t", **more)

    def sink(self, name: str) -> Any:
        return self.sinks.setdefault(name, st.memory_sink())

    def add(self, name: str, *rows: tuple[str, int]) -> None:
        """Add rows, and run epochs until they are in."""
        self.feeds[name].add("0", *rows)
        self.run()

    def run(self) -> None:
        while not self.engine.manifest.ended and self.engine.has_work():
            self.engine.run()
        assert not list(imbalances(self.engine.manifest.accounts))

    def end(self) -> None:
        for feed in self.feeds.values():
            feed.closed = True
        self.run()

    def rows(self, name: str, *columns: str) -> list[Any]:
        found = self.sinks[name].rows()
        return sorted(found.select([pl.col(c).to_physical() for c in columns or ("k", "n")]).rows())

    @property
    def notes(self) -> list[str]:
        return [text for _, text in self.engine.events]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def make(query: Callable[[Running], st.Query], options: Options | None = None, root: str | None = None) -> Running:
        made.append(Running(root or tmp_path / "ckpt", query, options))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def counted(keep: pl.Expr | None = None, **more: Any) -> Callable[[Running], st.Query]:
    """Make the form that most tests begin with: tuples of some keys, counted in windows of 10 µs."""

    def query(r: Running) -> st.Query:
        rows = r.source("feed")
        rows = rows if keep is None else rows.filter(keep)
        window = more.get("window", st.tumbling("10us"))
        counts = rows.aggregate(by="k", window=window, n=st.count(), name="counts")
        return st.Query("swapped", counts.to(r.sink("out"), name="out"))

    return query


# ── what is taken over ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stateless_step_is_another_one_from_the_boundary_on(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1), ("b", 2))
    r.swap(counted(pl.col("k") == "a"))
    r.add("feed", ("a", 3), ("b", 4))
    r.end()
    assert r.rows("out") == [("a", 2), ("b", 1)], "the window has what both forms let in"
    assert any("replaced swapped: " in note and "step filter is new" in note for note in r.notes)


def test_an_epoch_is_there_in_which_it_happens_though_nothing_came(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1))
    epoch = r.engine.manifest.epoch
    r.swap(counted(pl.col("k") == "a"))
    assert r.engine.manifest.epoch == epoch + 1
    assert r.engine.manifest.form is not None
    assert r.engine.manifest.form["steps"]["filter"]


def test_a_start_needs_the_form_of_the_last_epoch(running: Callable[..., Running], tmp_path: Path) -> None:
    r = running(counted())
    r.add("feed", ("a", 1), ("b", 2))
    r.swap(counted(pl.col("k") == "a"))
    r.add("feed", ("a", 3), ("b", 4))
    with pytest.raises(CheckpointError, match=r"another form of this query, .*replaced.*: .*filter"):
        r.restart(counted())
    r.restart(counted(pl.col("k") == "a"))
    r.add("feed", ("b", 5))
    assert Checkpoint(r.root).identity()["steps"].keys() == {"feed", "filter", "counts"}
    assert not verify(r.root).lost
    r.end()
    assert r.rows("out") == [("a", 2), ("b", 1)]


def test_an_earlier_epoch_is_restored_in_its_own_form(running: Callable[..., Running], tmp_path: Path) -> None:
    r = running(counted())
    r.add("feed", ("a", 1), ("b", 2))
    before = r.engine.manifest.epoch
    r.swap(counted(pl.col("k") == "a"))
    r.engine.close()
    restore(r.root, tmp_path / "earlier", before)
    restore(r.root, tmp_path / "now")
    r.root = tmp_path / "now"
    with pytest.raises(CheckpointError, match="another form"):
        r.start(counted())
    r.root = tmp_path / "earlier"
    r.sinks.clear()
    r.start(counted())
    r.end()
    assert r.rows("out") == [("a", 1), ("b", 1)]


def test_a_savepoint_of_a_query_that_was_replaced(running: Callable[..., Running], tmp_path: Path) -> None:
    """A query that begins with it may have other stateless steps and sinks; the ranks of its origins go along."""
    r = running(joined("m"))
    r.add("m", ("a", 1))
    r.swap(joined("m", "b"))
    r.add("b", ("a", 2))
    origins = r.engine.manifest.origins
    assert origins == ("counts", "m", "b")
    r.engine.close()
    begin_from(r.root, joined("m", "b")(r).plan(buckets=8), tmp_path / "again")
    r.root = tmp_path / "again"
    r.sinks.clear()
    r.start(joined("m", "b"))
    r.end()
    assert r.engine.manifest.origins == origins
    assert r.engine.manifest.form is None
    assert r.rows("out") == [("a", 2)]


def test_twice_in_a_row_and_back(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.swap(counted(pl.col("k") == "a"))
    r.swap(counted(pl.col("k") != "a"))
    r.add("feed", ("a", 1), ("b", 2))
    r.swap(counted())
    r.add("feed", ("a", 3), ("b", 4))
    r.restart(counted())
    r.end()
    assert r.rows("out") == [("a", 1), ("b", 2)]


def test_steps_and_sinks_come_and_go(running: Callable[..., Running]) -> None:
    def more(r: Running) -> st.Query:
        rows = r.source("feed")
        counts = rows.aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
        twice = rows.aggregate(by="k", window=st.tumbling("20us"), n=st.count(), name="twice")
        return st.Query(
            "swapped",
            counts.to(r.sink("out"), name="out"),
            twice.to(r.sink("long"), name="long"),
            rows.to(r.sink("copy"), name="copy"),
        )

    r = running(counted())
    r.add("feed", ("a", 1), ("b", 2))
    r.swap(more)
    r.add("feed", ("a", 3))
    r.swap(counted())
    (kept,) = savepoints(r.root)
    assert any(f"what twice had is in the savepoint {kept}" in note for note in r.notes)
    r.add("feed", ("a", 4))
    r.end()
    assert r.rows("out") == [("a", 3), ("b", 1)]
    assert r.rows("copy", "k", "ts") == [("a", 3)], "what came while it was there"
    assert r.rows("long") == []
    r.engine.close()
    again = r.root.with_name("again")
    begin_from(r.root / "savepoints" / kept, more(r).plan(buckets=8), again)
    release(r.root, kept)
    assert savepoints(r.root) == {}
    with pytest.raises(CheckpointError, match="has no savepoint"):
        release(r.root, kept)
    r.root = again
    r.sinks.clear()
    r.start(more)
    r.end()
    assert r.rows("long") == [("a", 2)], "what it had then, and what has come since"


def joined(*names: str) -> Callable[[Running], st.Query]:
    """Make a form that counts the tuples of several sources together."""

    def query(r: Running) -> st.Query:
        first, *others = [r.source(name) for name in names]
        rows = first.union(*others) if others else first
        counts = rows.aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
        return st.Query("swapped", counts.to(r.sink("out"), name="out"), first.late.to(r.sink("late"), name="late"))

    return query


def test_a_source_comes_and_goes(running: Callable[..., Running]) -> None:
    r = running(joined("one"))
    r.add("one", ("a", 1), ("a", 25))
    assert r.rows("out") == [("a", 1)]
    r.feeds["two"] = Feed()
    r.feeds["two"].add("0", ("x", 3), ("b", 26))
    r.swap(joined("one", "two"))
    r.run()
    assert r.engine.manifest.sources["two"].late == 1, "windows up to 25 µs have been given"
    r.add("one", ("a", 41))
    assert r.rows("out") == [("a", 1)], "the new source holds time back, as any does"
    r.add("two", ("b", 45))
    assert r.rows("out") == [("a", 1), ("a", 1), ("b", 1)]
    r.swap(joined("one"))
    r.add("one", ("a", 61))
    assert r.rows("out") == [("a", 1), ("a", 1), ("a", 1), ("b", 1), ("b", 1)], "what the other gave stays"
    assert r.engine.manifest.sources.keys() == {"one"}
    r.feeds["two"] = Feed()
    r.feeds["two"].add("0", ("c", 62))
    r.swap(joined("one", "two"))
    r.end()
    assert r.rows("out")[-1] == ("c", 1), "a source that comes back is read from its beginning"


def test_a_source_that_is_behind_does_not_come_to_a_step_that_is_ahead(running: Callable[..., Running]) -> None:
    def apart(r: Running) -> st.Query:
        counts = r.source("one").aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
        return st.Query(
            "swapped", counts.to(r.sink("out"), name="out"), r.source("two").to(r.sink("copy"), name="copy")
        )

    def together(r: Running) -> st.Query:
        one, two = r.source("one"), r.source("two")
        counts = one.union(two).aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
        return st.Query("swapped", counts.to(r.sink("out"), name="out"), two.to(r.sink("copy"), name="copy"))

    r = running(apart)
    r.add("one", ("a", 1), ("a", 25))
    r.add("two", ("b", 5))
    with pytest.raises(st.QueryError, match=r"step counts .*source two .*read up to 1970.*;"):
        r.swap(together)
    r.add("two", ("b", 26))
    r.swap(together)
    r.end()
    assert r.rows("out") == [("a", 1), ("a", 1)]
    assert r.rows("copy", "k") == [("b",), ("b",)]


def test_tuples_that_wait_keep_their_place_when_a_source_comes(running: Callable[..., Running]) -> None:
    """At one time, `m` was read before `z`: a source with a name before both does not change that, though one of the tuples waits in state."""

    def query(*names: str) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            first, *others = [r.source(name) for name in names]
            last = first.union(*others).aggregate(by=[], window=st.last_n(3), all=st.collect("k"), name="last")
            return st.Query("swapped", last.to(r.sink("out"), name="out"))

        return make

    r = running(query("m", "z"))
    r.feeds["m"].add("0", ("first", 5))
    r.feeds["z"].add("0", ("second", 5))
    r.run()
    r.swap(query("m", "z", "b"))
    r.feeds["b"].add("0", ("third", 5))
    r.run()
    r.end()
    assert [row["all"] for row in r.sinks["out"].rows().iter_rows(named=True)][-1] == ["first", "second", "third"]


def test_inputs_that_were_attached_are_read_on(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1))
    other = Feed()
    other.add("0", ("b", 2))
    r.engine.attach("feed", "other", other)
    r.run()
    r.swap(counted(pl.col("k") != "x"))
    other.add("0", ("b", 3))
    other.closed = True
    r.end()
    assert r.rows("out") == [("a", 1), ("b", 2)]


# ── user code ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Total(st.KeyOperator):
    state: ClassVar = {"total": pl.Int64}
    output: ClassVar = {"k": pl.String, "n": pl.Int64, "ts": st.TIME}
    step = 1

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {"total": 0}

    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        rows = []
        for ts in tuples["ts"]:
            state["total"] += self.step
            rows.append({"k": key[0], "n": state["total"], "ts": ts})
        return rows


class ByTen(Total):
    step = 10


class Typed(Total):
    state: ClassVar = {"sum": pl.Int64, "calls": pl.Int64}

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {"sum": 0, "calls": 0}

    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        rows = []
        for ts in tuples["ts"]:
            state["sum"], state["calls"] = state["sum"] + 100, state["calls"] + 1
            rows.append({"k": key[0], "n": state["sum"], "ts": ts})
        return rows


class Migrating(Typed):
    def migrate(self, old: dict[str, Any]) -> dict[str, Any]:
        return {"sum": old["total"], "calls": 0}


class Mistaken(Typed):
    def migrate(self, old: dict[str, Any]) -> dict[str, Any]:
        return {"sum": old["total"]}


class Whole(st.BucketOperator[dict[str, Any]]):
    output: ClassVar = {"k": pl.String, "n": pl.Int64, "ts": st.TIME}

    def init(self) -> dict[str, Any]:
        return {}

    def process(self, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        rows = []
        for k, ts in tuples.select("k", "ts").iter_rows():
            state[k] = state.get(k, 0) + 1
            rows.append({"k": k, "n": state[k], "ts": ts})
        return pl.DataFrame(rows, schema=self.output)


class WholeByName(Whole):
    def process(self, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        rows = []
        for k, ts in tuples.select("k", "ts").iter_rows():
            state["by"][k] = state["by"].get(k, 0) + 10
            rows.append({"k": k, "n": state["by"][k], "ts": ts})
        return pl.DataFrame(rows, schema=self.output)

    def init(self) -> dict[str, Any]:
        return {"by": {}}

    def migrate(self, old: Any) -> dict[str, Any]:
        return {"by": old}


def operated(operator: Any) -> Callable[[Running], st.Query]:
    def query(r: Running) -> st.Query:
        made = r.source("feed").operator(operator, keys="k", name="fold")
        return st.Query("swapped", made.to(r.sink("out"), name="out"))

    return query


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(Total(), ByTen(), 12), (Total(), Migrating(), 102), (Whole(), WholeByName(), 12)],
    ids=["the same state", "another state", "a state per bucket"],
)
def test_an_operator_with_other_code(running: Callable[..., Running], old: Any, new: Any, expected: int) -> None:
    r = running(operated(old))
    r.add("feed", ("a", 1), ("a", 2), ("b", 3), ("waits", 9))
    r.swap(operated(new))
    r.engine.scale("fold", 3)
    r.add("feed", ("a", 11), ("waits", 12))
    r.restart(operated(new))
    r.end()
    own = r.sinks["out"].rows().filter(pl.col("k") == "a")["n"].to_list()
    assert own == [1, 2, expected]


def test_what_waited_is_for_the_new_code(running: Callable[..., Running]) -> None:
    r = running(operated(Total()))
    r.add("feed", ("a", 1), ("a", 5))
    assert r.rows("out") == [("a", 1)], "the other one is not ready"
    r.swap(operated(Migrating()))
    r.end()
    assert r.rows("out") == [("a", 1), ("a", 101)]


def test_state_with_other_columns_needs_a_migration(running: Callable[..., Running]) -> None:
    r = running(operated(Total()))
    r.add("feed", ("a", 1), ("a", 2))
    with pytest.raises(st.QueryError, match=r"step fold \(operator\): its state had other columns .*migrate\(old\)"):
        r.swap(operated(Typed()))
    with pytest.raises(st.TakenBackError, match=r"Mistaken.migrate .*not a state"):
        r.swap(operated(Mistaken()))
    r.restart(operated(Total()))
    r.end()
    assert r.rows("out") == [("a", 1), ("a", 2)]


def summed(step: int, *, wide: bool = False) -> Callable[[Running], st.Query]:
    """Make a form with an aggregate of the user's own."""

    def query(r: Running) -> st.Query:
        counted = pl.len().cast(pl.Int64) * step
        own = st.user_aggregate(
            init={"n": 0, **({"m": 0} if wide else {})},
            add={"n": counted, **({"m": counted} if wide else {})},
            merge={"n": pl.col("n").sum(), **({"m": pl.col("m").sum()} if wide else {})},
            finish=pl.col("n"),
        )
        counts = r.source("feed").aggregate(by="k", window=st.tumbling("10us"), n=own, name="counts")
        return st.Query("swapped", counts.to(r.sink("out"), name="out"))

    return query


def test_a_user_aggregate_with_other_code(running: Callable[..., Running]) -> None:
    r = running(summed(1))
    r.add("feed", ("a", 1), ("a", 2))
    with pytest.raises(st.QueryError, match="partial results of n have other columns"):
        r.swap(summed(10, wide=True))
    r.swap(summed(10))
    r.add("feed", ("a", 3))
    r.end()
    assert r.rows("out") == [("a", 12)]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def refusals() -> Iterator[Any]:
    def other(build: Callable[[Running], st.Stream], name: str = "swapped") -> Callable[[Running], st.Query]:
        return lambda r: st.Query(name, build(r).to(r.sink("out"), name="out"))

    def per(r: Running, by: Any, **more: Any) -> st.Stream:
        window = st.tumbling("10us")
        return r.source("feed", **more).aggregate(by=by, window=window, n=st.count(), name="counts")

    yield pytest.param(
        counted(window=st.tumbling("20us")), "counts .*window: .*another name: it then begins", id="window"
    )
    yield pytest.param(other(lambda r: per(r, [])), "counts .*by: ", id="keys")
    yield pytest.param(
        other(lambda r: per(r, "k", max_disorder="5us")), "feed .*max_disorder.*read from its", id="source"
    )
    yield pytest.param(other(lambda r: per(r, "k"), "another"), "the query that runs is called 'swapped'", id="query")
    yield pytest.param(
        other(lambda r: r.source("feed").operator(Total(), keys="k", name="counts")), "of another kind", id="kind"
    )
    yield pytest.param(
        other(
            lambda r: (
                per(r, "k").filter(pl.col("n") > 0).aggregate(window=st.tumbling("1s"), n=st.count(), name="feed2")
            )
        ),
        None,
        id="a new one behind it is fine",
    )


@pytest.mark.parametrize(("query", "why"), [*refusals()])
def test_what_cannot_be_taken_over_is_refused(running: Callable[..., Running], query: Any, why: str | None) -> None:
    r = running(counted())
    r.add("feed", ("a", 1))
    before = r.engine.manifest
    if why is None:
        r.swap(query)
    else:
        with pytest.raises(st.QueryError, match=why):
            r.swap(query)
        assert r.engine.manifest is before, "nothing has changed"
        assert not savepoints(r.root)
        r.add("feed", ("a", 2))
        r.end()
        assert r.rows("out") == [("a", 2)]


@pytest.mark.parametrize("window", [st.tumbling("20us"), st.sliding("20us", every="10us"), st.session("10us")], ids=str)
def test_values_in_order_are_kept_with_all_columns(running: Callable[..., Running], window: Any) -> None:
    """Tuples with equal times and places are ordered by their content: in another form that must have the same columns."""

    def query(*, more: bool = False, select: bool = False) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            rows = r.source("feed")
            rows = rows.map(more=pl.lit(1)) if more else rows
            rows = rows.select("k", "ts") if select else rows
            kept = rows.aggregate(by="k", window=window, n=st.count(), all=st.collect("ts"), name="kept")
            counts = rows.aggregate(by="k", window=window, n=st.count(), name="counts")
            ends = [counts.to(r.sink("counts"), name="of-counts")]
            return st.Query("swapped", kept.to(r.sink("out"), name="out"), *ends)

        return make

    r = running(query())
    r.add("feed", ("a", 1), ("a", 3))
    with pytest.raises(
        st.QueryError, match=r"kept .aggregate.*order.*all columns.*k:str ts:time → k:str ts:time more:.*; select"
    ):
        r.swap(query(more=True))
    r.swap(query(more=True, select=True))
    r.add("feed", ("a", 5))
    r.end()
    assert {n for _, n in r.rows("out")} >= {3}
    assert r.rows("out") == r.rows("counts")


def test_the_last_tuples_are_kept_with_the_columns_that_were_read(running: Callable[..., Running]) -> None:
    def query(*, reads: str = "k", more: bool = False, union: bool = False) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            rows = r.source("feed").map(x=pl.lit(1), y=pl.lit(1))
            rows = rows.map(z=pl.lit(1)) if more else rows
            rows = rows.union(r.source("feed2").map(x=pl.lit(1), y=pl.lit(1))) if union else rows
            own = st.user_aggregate(
                init={"n": 0},
                add={"n": pl.col(reads).count().cast(pl.Int64)},
                merge={"n": pl.col("n").sum()},
                finish=pl.col("n"),
            )
            last = rows.aggregate(by="k", window=st.last_n(2), n=own, name="last")
            return st.Query("swapped", last.to(r.sink("out"), name="out"))

        return make

    r = running(query(reads="x"))
    r.add("feed", ("a", 1), ("a", 3), ("a", 5))
    for other in (query(reads="y"), query(reads="x", union=True)):
        with pytest.raises(st.QueryError, match=r"last .*keeps ts:time k:str x:.* and would need y:"):
            r.swap(other)
    r.swap(query(reads="x", more=True))
    r.end()
    assert r.rows("out") == [("a", 2)] * 2


def near(one: Any, other: Any, routing: Any = None) -> Callable[[Running], st.Query]:
    """Make a theta join of a stream with itself, or of two streams that are made of it."""

    def make(r: Running) -> st.Query:
        rows = r.source("feed")
        left, right = (rows if keep is None else rows.filter(keep) for keep in (one, other))
        pairs = left.theta_join(right, pl.col("k") != pl.col("k_right"), within="5us", routing=routing, name="near")
        return st.Query("swapped", pairs.select("k", "k_right", "ts").to(r.sink("out"), name="out"))

    return make


ALL, ANY = pl.col("k") != "x", pl.col("k") != "y"


@pytest.mark.parametrize(
    ("old", "new", "fits", "why"),
    [
        ((None, None), (ALL, None), None, "broadcast, once → grid.*; change both sides"),
        ((None, None), (ALL, None, "broadcast"), None, "broadcast, once → broadcast.*; change both sides"),
        ((ALL, None), (None, None), (None, None, "grid"), 'grid → broadcast, once.*; say routing="grid"'),
        ((ALL, None), (ALL, ANY, "broadcast"), (ALL, ANY, "grid"), 'grid → broadcast.*; say routing="grid"'),
    ],
)
def test_a_theta_join_keeps_its_state_where_it_is(
    running: Callable[..., Running], old: Any, new: Any, fits: Any, why: str
) -> None:
    """A stream that is joined with itself is kept once; whether it is depends on what is before it."""
    r = running(near(*old))
    r.add("feed", ("a", 1), ("b", 3), ("c", 5))
    with pytest.raises(st.QueryError, match=rf"near .*{why}"):
        r.swap(near(*new))
    if fits is not None:
        r.swap(near(*fits))
    r.add("feed", ("d", 7))
    r.swap(near(*old))
    r.end()
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("b", "d"), ("c", "d")]
    assert r.rows("out", "k", "k_right") == sorted([*pairs, *((b, a) for a, b in pairs)])


def test_a_policy_that_does_not_fit_leaves_no_savepoint(running: Callable[..., Running]) -> None:
    def copied(r: Running) -> st.Query:
        return st.Query("swapped", r.source("feed").to(r.sink("copy"), name="copy"))

    r = running(counted())
    r.add("feed", ("a", 1))
    with pytest.raises(st.QueryError, match="nobody"):
        r.swap(copied, Elastic(limits={"nobody": (1, 2)}))
    assert savepoints(r.root) == {}


def test_steps_without_names_are_not_guessed(running: Callable[..., Running]) -> None:
    def query(*lengths: str) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            rows = r.source("feed")
            streams = [rows.aggregate(by="k", window=st.tumbling(length), n=st.count()) for length in lengths]
            return st.Query("swapped", *(s.to(r.sink(f"{i}"), name=f"{i}") for i, s in enumerate(streams)))

        return make

    r = running(query("10us"))
    with pytest.raises(st.QueryError, match=r"without a name.*; .*name"):
        r.swap(query("10us", "20us"))


class Full(Sink):
    """A sink that admits nobody."""

    def describe(self) -> str:
        return "full"

    def admit(self, owner: Any) -> None:
        raise st.SinkError("full (sink)", "there is no room", "give it some")

    def publish(self, publication: Publication) -> None:
        raise AssertionError


def test_a_sink_that_refuses(running: Callable[..., Running]) -> None:
    def query(r: Running) -> st.Query:
        rows = r.source("feed")
        return st.Query("swapped", rows.to(r.sink("copy"), name="copy"), rows.to(Full(), name="full"))

    r = running(counted())
    r.add("feed", ("a", 1))
    with pytest.raises(st.SinkError, match="there is no room"):
        r.swap(query)
    assert savepoints(r.root) == {}, "what was kept of the step that was to go is not needed"
    r.end()
    assert r.rows("out") == [("a", 1)]


# ── what is taken back ────────────────────────────────────────────────────────────────────────────────────────────────


class Failing(Total):
    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        raise ZeroDivisionError("not today")


@pytest.mark.parametrize("every", ["epoch", "never"])
def test_a_form_whose_first_epoch_fails_is_taken_back(
    running: Callable[..., Running], tmp_path: Path, every: str
) -> None:
    r = running(operated(Total()), Options(2, durability=st.Durability(every=every, shared_memory=tmp_path)))
    r.add("feed", ("a", 1), ("a", 2))
    r.feeds["feed"].add("0", ("a", 3), ("a", 4))
    with pytest.raises(st.TakenBackError, match=r"the old one continues: step fold .*ZeroDivisionError: not today"):
        r.swap(operated(Failing()))
    assert any("was taken back: step fold" in note for note in r.notes)
    assert r.engine.manifest.form is None
    r.add("feed", ("a", 5))
    r.restart(operated(Total()))
    r.end()
    assert r.rows("out") == [("a", n) for n in (1, 2, 3, 4, 5)]


def test_connectors_that_are_made_anew_are_opened_again_when_it_is_taken_back(
    running: Callable[..., Running], tmp_path: Path
) -> None:
    def query(operator: Any) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            made = r.source("feed").operator(operator, keys="k", name="fold")
            return st.Query("swapped", made.to(st.parquet_sink(tmp_path / "out"), name="out"))

        return make

    r = running(query(Total()))
    r.add("feed", ("a", 1), ("a", 2))
    r.feeds["feed"] = replace(r.feeds["feed"], rows=dict(r.feeds["feed"].rows))
    r.feeds["feed"].rows["0"] = [*r.feeds["feed"].rows["0"], ("a", 3)]
    with pytest.raises(st.TakenBackError):
        r.swap(query(Failing()))
    r.run()
    r.swap(query(ByTen()))
    r.end()
    assert pl.read_parquet(tmp_path / "out" / "*.parquet")["n"].sort().to_list() == [1, 11, 21]


class Reopened(Sink, Writer):
    """A sink that can be opened once."""

    opened = False

    def describe(self) -> str:
        return "once"

    def open(self, owner: Owner) -> Writer:
        if self.opened:
            raise OSError("it is away")
        self.opened = True
        return self

    def publish(self, publication: Publication) -> None:
        pass


def test_a_run_whose_sink_cannot_be_opened_again_ends(running: Callable[..., Running]) -> None:
    """It must not go on with a sink that was closed for a form that was taken back."""

    def query(operator: Any, sink: Any) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            made = r.source("feed").operator(operator, keys="k", name="fold")
            return st.Query("swapped", made.to(sink, name="out"))

        return make

    r = running(query(Total(), Reopened()), Options(2, patience=0.0))
    r.add("feed", ("a", 1), ("a", 2))
    r.feeds["feed"].add("0", ("a", 3))
    for act in (lambda: r.swap(query(Failing(), st.memory_sink())), r.run):
        with pytest.raises(st.UnavailableError, match=r"out .sink.: .*it is away"):
            act()
    r.restart(query(Total(), st.memory_sink()))
    r.run()


def test_state_of_a_form_that_was_taken_back_does_not_count_as_durable(
    running: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of its epoch was; that of the old form's epoch with the same number is not."""
    durable = st.Durability(every="never", shared_memory=tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    r = running(counted(), Options(2, durability=durable))
    r.add("feed", ("a", 1))

    def fail(place: str) -> None:
        if place == "after-job":
            raise st.SpringtideError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(epochs_module, "failpoint", fail)
        with pytest.raises(st.TakenBackError):
            r.swap(counted(pl.col("k") == "a"))
    r.add("feed", ("a", 2))
    r.add("feed", ("a", 3))
    for path in (tmp_path / "memory").rglob("*.arrow"):
        path.unlink()
    r.add("feed", ("a", 4))
    r.end()
    assert r.rows("out") == [("a", 4)]


# ── beside other changes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_old_owners_go_on_with_their_windows(running: Callable[..., Running]) -> None:
    r = running(counted(window=st.sliding("20us", every="10us")))
    r.add("feed", ("a", 1), ("b", 2))
    r.engine.scale("counts", 3, "window")
    r.add("feed", ("a", 3))
    assert r.engine.manifest.old_owners
    r.engine.scale("counts", 1, "window")
    r.swap(counted(pl.col("k") != "x", window=st.sliding("20us", every="10us")))
    assert r.engine.manifest.old_owners
    r.add("feed", ("a", 4), ("x", 5), ("a", 31), ("b", 61))
    assert not r.engine.manifest.old_owners
    r.end()
    rows = r.sinks["out"].rows().filter(pl.col("window_start").to_physical() == 0)
    assert sorted(rows.select("k", "n").rows()) == [("a", 3), ("b", 1)]


def test_a_step_that_goes_while_it_is_scaled(running: Callable[..., Running]) -> None:
    def copied(r: Running) -> st.Query:
        return st.Query("swapped", r.source("feed").to(r.sink("copy"), name="copy"))

    r = running(counted())
    r.add("feed", ("a", 1))
    file = send(r.root, Command("scale", {"step": "counts", "instances": 4}))
    r.engine.take_commands()
    r.swap(copied)
    answer = read_answer(file)
    assert answer is not None
    assert (answer.status, answer.reason) == ("failed", "the query was replaced, and has no counts any more")
    r.add("feed", ("a", 2))
    assert r.rows("copy", "k") == [("a",)]


def test_lost_state_is_rebuilt_up_to_the_boundary_and_no_further(
    running: Callable[..., Running], tmp_path: Path
) -> None:
    durable = st.Durability(every="never", shared_memory=tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    r = running(counted(), Options(2, durability=durable))

    def lose() -> None:
        for path in (tmp_path / "memory").rglob("*.arrow"):
            path.unlink()

    r.add("feed", ("a", 1))
    r.add("feed", ("b", 2))
    lose()
    r.swap(counted(pl.col("k") == "a"))
    assert any("rebuilt" in note for note in r.notes)
    r.add("feed", ("a", 3), ("b", 4))
    r.add("feed", ("a", 5))
    lose()
    r.add("feed", ("a", 6))
    r.end()
    assert r.rows("out") == [("a", 4), ("b", 1)]


def test_another_policy_decides_from_now_on(running: Callable[..., Running]) -> None:
    """SM-6: the manager's code is replaced while the query runs."""
    r = running(counted())
    r.add("feed", ("a", 1))
    with pytest.raises(st.QueryError, match="no such step"):
        r.engine.change_elasticity(Elastic(limits={"nobody": (1, 2)}))
    r.engine.change_elasticity(Elastic(min=1, max=2))
    with pytest.raises(st.QueryError, match=r"counts.*3 instances.*limits"):
        r.engine.scale("counts", 3)
    r.swap(counted(pl.col("k") == "a"), Elastic(max=3))
    r.engine.scale("counts", 3)
    r.add("feed", ("a", 2))
    assert r.engine.manifest.maps["counts"].instances == 3
    r.engine.change_elasticity(None)
    r.engine.scale("counts", 4)


class Mine:
    """A policy that wants nothing."""

    patience = 1

    def decide(self, snapshot: st.Snapshot, history: Any) -> list[st.Proposal]:
        return []


def test_the_history_says_what_was_changed_about_elasticity(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1))
    r.engine.change_elasticity(Elastic(max=2))
    r.add("feed", ("a", 2))
    first = r.engine.manifest
    r.engine.change_elasticity(Elastic(max=2))
    r.engine.change_elasticity(Elastic(max=3, policy=Mine()))
    changed = Mine()
    changed.patience = 2
    r.swap(counted(pl.col("k") == "a"), Elastic(max=3, policy=changed))
    r.engine.change_elasticity(None)
    begun, same, other, swapped, over = r.engine.decisions()
    assert begun.instruction.reason == "elasticity begins"
    assert begun.outcome is not None
    assert begun.outcome.epoch == first.epoch
    assert same.instruction.reason == "elasticity is as it was"
    assert "elasticity: max: 2 → 3; elasticity: policy: Threshold" in other.instruction.reason
    assert re.search(r"filter is new; elasticity: policy: Mine \(\w+\) → Mine \(\w+\)", swapped.instruction.reason)
    assert over.instruction.reason == "elasticity is over"
    assert over.outcome is None
    r.add("feed", ("a", 3))
    assert all(d.outcome is not None for d in r.engine.decisions())
    assert any(note == "replaced swapped: elasticity is over" for note in r.notes)


def test_the_history_says_what_it_cost(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1))
    r.swap(counted(pl.col("k") == "a"))
    (decision,) = r.engine.decisions()
    assert decision.change == "replaced"
    assert decision.instruction.reason.startswith("step counts: inputs: feed → filter; step filter is new")
    assert decision.outcome is not None
    assert decision.outcome.epoch == r.engine.manifest.epoch


def reloaded(replace: Callable[[], Manifest]) -> Future[Manifest]:
    """Read the file again at once."""
    done: Future[Manifest] = Future()
    done.set_result(replace())
    return done


def test_the_file_is_read_again_while_epochs_go_on(running: Callable[..., Running]) -> None:
    r, begun = running(counted()), list[Future[Manifest]]()

    def begin() -> Future[Manifest]:
        begun.append(Future())
        return begun[-1]

    r.engine.reload = begin
    first, second = send(r.root, Command("reload")), send(r.root, Command("reload"))
    for k in "abc":
        r.engine.take_commands()
        r.add("feed", (k, 1))
    assert len(begun) == 1, "one after the other"
    assert first.exists()
    begun[0].set_exception(st.QueryError("x (source)", "it is another one", "keep it"))
    r.engine.take_commands()
    answer = read_answer(first)
    assert answer is not None
    assert (answer.status, answer.reason) == ("refused", "step x (source): it is another one; keep it")
    assert any("the command 'reload' was refused: step x" in note for note in r.notes)
    assert len(begun) == 2
    r.end()
    r.engine.close()
    answer = read_answer(second)
    assert answer is not None
    assert (answer.status, answer.reason) == ("failed", "the run ended before the query was replaced")
    assert not second.exists(), "the next run begins with what its file has anyway"


def test_reading_the_file_again_is_for_runs_that_have_one(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1))
    file = send(r.root, Command("reload"))
    r.engine.take_commands()
    answer = read_answer(file)
    assert answer is not None
    assert answer.status == "refused"
    assert "run.replace(query)" in answer.reason

    plan = counted(pl.col("k") == "a")(r).plan(buckets=8)
    r.engine.reload = lambda: reloaded(lambda: r.engine.replace(plan, lambda epoch: execute(plan, epoch), None))
    file = send(r.root, Command("reload"))
    r.engine.take_commands()
    answer = read_answer(file)
    assert answer is not None
    assert (answer.status, answer.epoch) == ("done", r.engine.manifest.epoch)


def test_commands_that_came_with_it_are_for_the_new_form(running: Callable[..., Running]) -> None:
    """They lie in the control folder together when an epoch has taken long."""
    elastic = Elastic(policy=st.Manual(), balancing=None)
    r = running(counted(), Options(2, elastic=elastic))
    r.add("feed", ("a", 1))
    plan = counted(pl.col("k") == "a")(r).plan(buckets=8)
    r.engine.reload = lambda: reloaded(lambda: r.engine.replace(plan, lambda epoch: execute(plan, epoch), elastic))
    files = [
        send(r.root, Command(*of)) for of in (("reload",), ("pause",), ("scale", {"step": "counts", "instances": 3}))
    ]
    r.engine.take_commands()
    r.add("feed", ("a", 2))
    assert [getattr(read_answer(file), "status", None) for file in files] == ["done"] * 3
    manager = r.engine.reconfiguring.manager
    assert manager is not None
    assert manager.paused
    assert r.engine.manifest.maps["counts"].instances == 3


def test_a_backup_has_the_form_too(running: Callable[..., Running], tmp_path: Path) -> None:
    r = running(counted(), Options(2, durability=st.Durability(backup=tmp_path / "backup")))
    r.add("feed", ("a", 1), ("b", 2))
    r.swap(counted(pl.col("k") == "a"))
    r.add("feed", ("a", 3), ("b", 4))
    r.engine.close()
    shutil.rmtree(r.root)
    with pytest.raises(CheckpointError, match="another form"):
        r.start(counted())
    r.start(counted(pl.col("k") == "a"))
    r.end()
    assert r.rows("out") == [("a", 2), ("b", 1)]


def test_a_folder_that_went_on_without_its_backup_has_a_form_of_its_own(
    running: Callable[..., Running], tmp_path: Path
) -> None:
    backed = Options(2, durability=st.Durability(backup=tmp_path / "backup"))
    r = running(counted(), backed)
    r.add("feed", ("a", 1), ("b", 2))
    r.options = Options(2)
    r.restart(counted())
    r.swap(counted(pl.col("k") == "a"))
    r.add("feed", ("a", 3))
    r.options = backed
    with pytest.raises(AnotherFormError):
        r.restart(counted())
    r.start(counted(pl.col("k") == "a"))
    r.add("feed", ("b", 4))
    r.end()
    assert r.rows("out") == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("place", ["folder", "backup", "store"])
def test_whoever_takes_over_has_the_form_of_the_epoch_that_it_continues_from(
    running: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The run at work replaces the query after somebody has looked which form it has, and before that one takes over."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)  # as on two machines
    backup = tmp_path / "backup" if place == "backup" else None
    root = "fake://bucket/ckpt" if place == "store" else tmp_path / ("other" if place == "backup" else "ckpt")
    ours, theirs = (
        Options(2, durability=st.Durability(backup=backup, cache=tmp_path / node)) for node in ("one", "two")
    )
    check, looks = Checkpoint.check, list[None]()
    with served(bucket=Misbehaving(7, trouble=0.0)):
        r = running(counted(), ours, root if place == "store" else None)
        r.add("feed", ("a", 1), ("b", 2))
        old = counted()(r).plan(buckets=8)

        def checked(self: Checkpoint, *given: Any, **named: Any) -> None:
            check(self, *given, **named)
            if not looks:
                looks.append(None)
                r.swap(counted(pl.col("k") == "a"))

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "check", checked)
            with pytest.raises(AnotherFormError):
                Engine(old, theirs.durability.checkpoint(root), lambda epoch: execute(old, epoch), theirs)
        assert looks
        r.add("feed", ("a", 3), ("b", 4))  # nobody has taken over
        r.end()
        r.engine.close()
        assert r.rows("out") == [("a", 2), ("b", 1)]


class Died(BaseException):
    """A process that is gone: nothing is tidied up."""


def test_a_sink_that_goes_has_shown_all_its_rows_whatever_happens_then(
    running: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held them back; the process dies when the new form is committed, and the next start knows nothing of that sink."""

    def query(*copies: str) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            rows = r.source("feed")
            counts = rows.aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
            ends = [rows.to(st.parquet_sink(tmp_path / "copy", roll="1h"), name=name) for name in copies]
            return st.Query("swapped", counts.to(r.sink("out"), name="out"), *ends)

        return make

    def die(place: str) -> None:
        if place == "after-manifest":
            raise Died

    r = running(query("copy"))
    r.add("feed", ("a", 1), ("b", 2))
    assert not list((tmp_path / "copy").glob("*.parquet"))
    with monkeypatch.context() as patch:
        patch.setattr(epochs_module, "failpoint", die)
        with pytest.raises(Died):
            r.swap(query())
    r.engine.storage.release()
    r.start(query())
    assert pl.read_parquet(tmp_path / "copy" / "*.parquet")["k"].sort().to_list() == ["a", "b"]


class Holding(Sink, Writer):
    """A sink that shows its rows when it is closed, for which there may be no room."""

    def __init__(self) -> None:
        self.full, self.opened, self.held, self.shown = False, False, 0, 0

    def describe(self) -> str:
        return "holding"

    def open(self, owner: Owner) -> Writer:
        self.opened = True
        return self

    def publish(self, publication: Publication) -> None:
        assert self.opened
        self.held += sum(publication.rows)

    def close(self) -> None:
        self.opened = False
        if self.full:
            raise OSError("no space left on device")
        self.shown, self.held = self.shown + self.held, 0


def test_a_sink_that_cannot_show_what_it_holds_back_does_not_go(running: Callable[..., Running]) -> None:
    """Nobody would show it later: no later start has that sink."""
    sink = Holding()

    def query(*names: str) -> Callable[[Running], st.Query]:
        def make(r: Running) -> st.Query:
            rows = r.source("feed")
            counts = rows.aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
            return st.Query("swapped", counts.to(r.sink("out"), name="out"), *(rows.to(sink, name=n) for n in names))

        return make

    r = running(query("copy"))
    r.add("feed", ("a", 1), ("b", 2))
    sink.full = True
    with pytest.raises(st.UnavailableError, match=r"copy .sink.: OSError: no space left"):
        r.swap(query())
    assert r.engine.manifest.form is None
    r.add("feed", ("a", 3))
    assert (sink.held, sink.shown) == (3, 0), "it was opened again, and the old form goes on"
    sink.full = False
    r.swap(query())
    assert (sink.held, sink.shown) == (0, 3)
    r.end()
    assert r.rows("out") == [("a", 2), ("b", 1)]


# ── dying ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", PLACES)
def test_a_process_killed_at_any_step_of_it_goes_on_in_the_form_that_was_committed(tmp_path: Path, place: str) -> None:
    """Before the manifest it is the old form that goes on, after it the new one; the other one is refused, and no row is lost or doubled."""
    write_input(tmp_path)
    visit = 3 * (swapping.AFTER + 1) + 2 if place == "during-publish" else swapping.AFTER + 2
    child = PROCESSES.Process(target=swapping.run_and_replace, args=(tmp_path, f"{place}:{visit}"))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    done = place not in ("before-job", "after-job")
    with pytest.raises(CheckpointError, match="another form of this query"):
        swapping.run_on(tmp_path, is_replaced=not done)
    swapping.run_on(tmp_path, is_replaced=done)
    copied = pl.read_parquet(tmp_path / "copy" / "*.parquet").sort("x")
    factors = (copied["double"] / copied["x"]).to_list()[1:]
    assert copied["x"].to_list() == list(range(60)), "every row once"
    assert set(factors) == ({2, 3} if done else {2})
    assert factors == sorted(factors), "those that were read before are of the old form"
    compare(pl.read_parquet(tmp_path / "sums" / "*.parquet"), swapping.first(tmp_path).run_reference().rows("sums"))
    assert bool(savepoints(tmp_path / "checkpoint")), "what the step had that is gone; or a copy that nobody needs"
    assert not verify(tmp_path / "checkpoint").lost
