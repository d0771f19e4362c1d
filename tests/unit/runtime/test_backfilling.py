"""Steps that are added to a running query and begin with the history of their sources (SM-3)."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest

import springtide as st
from springtide.runtime.backfilling import Backfill, history_of, plan_of
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute
from springtide.state.accounts import imbalances
from springtide.state.verifying import verify
from springtide.testing import compare
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.runtime import swapping
from tests.unit.runtime.crashing import write_input
from tests.unit.runtime.test_engine import Feed
from tests.unit.runtime.test_inprocess import PROCESSES
from tests.unit.runtime.test_remote import URL
from tests.unit.runtime.test_replacing import Failing, Running, counted
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


def test_the_old_form_goes_on_while_it_is_built_slice_by_slice(running: Callable[..., Running]) -> None:
    r = running(counted(), Options(2, rows_per_epoch=5))
    r.add("feed", *(("a", i) for i in range(40)))
    seen: list[int] = []
    plan = more(st.tumbling("1ms"))(r).plan(buckets=8)
    part = plan_of(plan, ["twice"])

    def run(epoch: Any) -> Any:
        seen.append(sum(s.rows for prefix in epoch.slices.values() for own in prefix for s in own))
        return execute(part, epoch)

    backfill = r.engine.backfill(["twice"], plan, part, run)
    slices = 0
    while not r.engine.advance(backfill, plan):
        slices += 1
        r.feeds["feed"].add("0", ("a", 100 + slices))
        r.engine.run() if r.engine.has_work() else None
    r.engine.replace(plan, lambda epoch: execute(plan, epoch), None, backfill)
    assert max(seen) <= 5, "never more than an epoch's rows at once"
    assert slices >= 8
    assert sum(seen) == 40 + slices, "each row once"
    r.end()
    assert r.rows("long") == [("a", 40 + slices)]


def numbers(folder: Path, count: int = 60) -> Path:
    i = pl.int_range(count, eager=True)
    frame = pl.DataFrame({"n": i, "ts": i.cast(pl.Int64).cast(st.TIME)})
    for part in range(3):
        write(folder, f"{part}", frame[part * count // 3 : (part + 1) * count // 3])
    return folder / "in"


def write(folder: Path, name: str, rows: pl.DataFrame) -> None:
    (folder / "in").mkdir(exist_ok=True)
    rows.write_parquet(folder / "in" / f"{name}.parquet", row_group_size=7)
    rows.write_csv(folder / "in" / f"{name}.csv", datetime_format="%Y-%m-%dT%H:%M:%S%.6fZ")


def made(stream: int, first: int, count: int) -> pl.DataFrame:
    i = pl.int_range(first, first + count, eager=True)
    return pl.DataFrame({"n": i, "ts": i.cast(pl.Int64).cast(st.TIME)})


SCHEMA = {"n": pl.Int64, "ts": st.TIME}
SOURCES: dict[str, Callable[[Path], Any]] = {
    "parquet": lambda folder: st.parquet(numbers(folder), schema=SCHEMA),
    "parquet, followed": lambda folder: st.parquet(numbers(folder), schema=SCHEMA, follow=True),
    "csv": lambda folder: st.csv(numbers(folder), schema=SCHEMA),
    "csv, followed": lambda folder: st.csv(numbers(folder), schema=SCHEMA, follow=True),
    "generated": lambda _: st.generate(made, rate=None, streams=2, total=60),
    "memory": lambda _: st.memory({"a": made(0, 0, 40), "b": made(0, 0, 20)}),
    "delta": lambda folder: delta(folder),
    "delta, from a version on": lambda folder: delta(folder, start=0),
    "delta, followed": lambda folder: delta(folder, follow=True),
}


def delta(folder: Path, **options: Any) -> Any:
    for part in range(3):
        deltalake.write_deltalake(folder / "table", made(0, 20 * part, 20).to_arrow(), mode="append")
    return st.delta(folder / "table", **options)


def counting(connector: Any, *, grown: bool) -> Callable[[Running], st.Query]:
    def query(r: Running) -> st.Query:
        rows = st.source("rows", connector, ts="ts")
        ends = [rows.to(r.sink("copy"), name="copy")]
        if grown:
            all_of_them = rows.aggregate(window=st.tumbling("1h"), n=st.count(), total=st.sum("n"), name="all")
            ends.append(all_of_them.to(r.sink("all"), name="to-all"))
        return st.Query("swapped", *ends)

    return query


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("epochs", [1, 4])
def test_every_row_that_was_read_is_read_again_once(
    running: Callable[..., Running], tmp_path: Path, kind: str, epochs: int
) -> None:
    connector = SOURCES[kind](tmp_path)
    r = running(counting(connector, grown=False), Options(2, rows_per_epoch=11))
    for _ in range(epochs):
        assert r.engine.has_work()
        r.engine.run()
    done = r.engine.manifest.sources["rows"].accepted
    assert 0 < done < 60
    plan, backfill = begun(r, counting(connector, grown=True))
    r.engine.advance(backfill, plan)
    assert r.engine.has_work()
    r.engine.run()  # the old form goes on, in the middle of a file perhaps
    r.engine.replace(plan, lambda epoch: execute(plan, epoch), None, backfill)
    r.run()
    if kind.endswith("followed"):  # its window ends when there is a later row
        last = pl.DataFrame({"n": [0], "ts": [7_200_000_000]}, schema=SCHEMA)
        write(tmp_path, "9", last)
        if kind.startswith("delta"):
            deltalake.write_deltalake(tmp_path / "table", last.to_arrow(), mode="append")
        r.run()
    total = {"memory": sum(range(40)) + sum(range(20)), "generated": 2 * sum(range(30))}.get(kind, sum(range(60)))
    assert r.rows("all", "n", "total") == [(60, total)]
    assert not verify(r.root).lost


# ── what is refused, and what is taken back ───────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_is_refused_before_anything_changes(
    running: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    r = running(counted())
    r.add("feed", ("a", 1), ("a", 25))
    before = r.engine.manifest

    def chained(r: Running) -> st.Query:
        rows = r.source("feed")
        first = rows.aggregate(by="k", window=st.tumbling("20us"), n=st.count(), name="first")
        second = first.aggregate(by="k", window=st.tumbling("40us"), n=st.count(), name="second")
        counts = rows.filter(pl.col("k") != "x").aggregate(
            by="k", window=st.tumbling("10us"), n=st.count(), name="counts"
        )
        return st.Query("swapped", counts.to(r.sink("out"), name="out"), second.to(r.sink("long"), name="long"))

    for history, why in (
        (["second"], r"second .aggregate.: .*first, which is new .*history=\['first', 'second'\]"),
        (["counts"], r"counts .aggregate.: .*not new.*; .*: first, second"),
        (["filter"], r"filter .filter.: it has no state .*: first, second"),
        (["secnd"], r"secnd .unknown.: .*second"),
    ):
        with pytest.raises(st.QueryError, match=why):
            begun(r, chained, history)
    monkeypatch.setattr(Feed, "upto", lambda *_: None)
    with pytest.raises(st.QueryError, match=r"feed .source.: .* again .*first, second.*; .*without"):
        begun(r, chained)
    r.engine.attach("feed", "more", Feed({"0": [("a", 26)]}, closed=True))
    r.run()
    with pytest.raises(st.QueryError, match=r"feed .source.: other inputs are attached to it.*more"):
        begun(r, chained)
    assert r.engine.manifest.form is before.form
    assert not list((r.root / "state").rglob("-*.arrow"))


@pytest.mark.parametrize("fault", ["changed", "gone"])
def test_a_source_that_has_lost_what_was_read_is_refused(
    running: Callable[..., Running], tmp_path: Path, fault: str
) -> None:
    connector = st.parquet(numbers(tmp_path), schema=SCHEMA, follow=True)
    r = running(counting(connector, grown=False), Options(2, rows_per_epoch=11))
    r.run()
    plan, backfill = begun(r, counting(connector, grown=True))
    if fault == "changed":
        made(0, 0, 3).write_parquet(tmp_path / "in" / "2.parquet")
    elif fault == "gone":
        (tmp_path / "in" / "2.parquet").unlink()
    why = {"changed": "has changed since it was read", "gone": "is no longer in"}[fault]
    with pytest.raises(st.SpringtideError, match=why):
        r.engine.replace(plan, lambda epoch: execute(plan, epoch), None, backfill)
    assert r.engine.manifest.form is None
    assert not list((r.root / "state").rglob("-*.arrow"))
    assert r.rows("copy", "n") == [(n,) for n in range(60)]


def test_a_form_that_is_taken_back_leaves_nothing(running: Callable[..., Running]) -> None:
    def failing(r: Running) -> st.Query:
        rows = r.source("feed")
        counts = rows.aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
        twice = rows.aggregate(by="k", window=st.tumbling("20us"), n=st.count(), name="twice")
        fails = rows.operator(Failing(), keys="k", name="fails")
        ends = {"out": counts, "long": twice, "never": fails}
        return st.Query("swapped", *(s.to(r.sink(name), name=name) for name, s in ends.items()))

    r = running(counted())
    r.add("feed", ("a", 1), ("a", 25))
    r.feeds["feed"].add("0", ("a", 26), ("a", 27))
    with pytest.raises(st.TakenBackError, match="not today"):
        swap(r, failing, ["twice"])
    assert not list((r.root / "state").rglob("-*.arrow"))
    r.run()
    swap(r, more())
    r.end()
    assert r.rows("long") == [("a", 3)]
    assert r.rows("out") == [("a", 1), ("a", 3)]


def test_a_source_that_gives_other_rows_is_refused(running: Callable[..., Running]) -> None:
    r = running(counted())
    r.add("feed", ("a", 1), ("a", 25), ("a", 26))
    r.feeds["feed"] = Feed({"0": [("a", 1), ("a", 25)]})  # retention has taken one
    with pytest.raises(st.QueryError, match=r"feed .source.: .*3 rows .*now .*2"):
        swap(r, more())
    r.feeds["feed"] = Feed({"0": [("a", 1), ("a", 25), ("a", 99)]})
    with pytest.raises(st.QueryError, match=r"feed .source.: .*later rows"):
        swap(r, more())
    assert not list((r.root / "state").rglob("-*.arrow"))


# ── dying, and other places ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_built_when_the_run_died_is_swept_away(running: Callable[..., Running]) -> None:
    r = running(counted(), Options(2, rows_per_epoch=2))
    r.add("feed", *(("a", i) for i in range(20)))
    plan, backfill = begun(r, more())
    r.engine.advance(backfill, plan)
    assert list((r.root / "state").rglob("-*.arrow"))
    r.restart(counted())
    assert not list((r.root / "state").rglob("-*.arrow"))
    swap(r, more())
    r.restart(more())
    r.end()
    assert r.rows("long") == [("a", 20)]


@pytest.mark.parametrize("place", ["before-job", "after-job", "after-manifest", "after-clean"])
def test_a_process_killed_in_the_first_epoch_has_the_history_or_the_old_form(tmp_path: Path, place: str) -> None:
    write_input(tmp_path)
    child = PROCESSES.Process(
        target=swapping.run_and_replace, args=(tmp_path, f"{place}:{swapping.AFTER + 2}"), kwargs={"history": True}
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    done = place not in ("before-job", "after-job")
    swapping.run_on(tmp_path, is_replaced=done)
    assert not [f for f in (tmp_path / "checkpoint" / "state").rglob("-*.arrow") if not done]
    if done:
        minutes = swapping.replaced(tmp_path).run_reference().rows("minutes")
        compare(pl.read_parquet(tmp_path / "minutes" / "*.parquet"), minutes)
    compare(pl.read_parquet(tmp_path / "sums" / "*.parquet"), swapping.first(tmp_path).run_reference().rows("sums"))
    assert not verify(tmp_path / "checkpoint").lost


@pytest.mark.parametrize("every", ["epoch", "never"])
def test_a_backup_has_the_history_too(running: Callable[..., Running], tmp_path: Path, every: str) -> None:
    kept = st.Durability(every=every, backup=tmp_path / "backup", shared_memory=tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    r = running(counted(), Options(2, durability=kept))
    r.add("feed", ("a", 21), ("b", 22))
    plan, backfill = begun(r, more())
    r.engine.replace(plan, lambda epoch: execute(plan, epoch), None, backfill)
    r.add("feed", ("a", 23))
    r.engine.close()
    shutil.rmtree(r.root)
    r.start(more())
    r.end()
    assert r.rows("long") == [("a", 2), ("b", 1)]


def test_in_an_object_store(tmp_path: Path) -> None:
    feed, sink = Feed(), st.memory_sink()

    def query(*windows: str) -> Any:
        source = st.source("feed", feed, ts="t")
        counts = [
            source.aggregate(by="k", window=st.tumbling(w), n=st.count(), name=f"counts-{w}").to(
                sink if w == "20us" else st.memory_sink(), name=f"to-{w}"
            )
            for w in windows
        ]
        return st.Query("stored", *counts).plan(buckets=8)

    def engine(node: str, plan: Any) -> Engine:
        options = Options(2, durability=st.Durability(cache=tmp_path / node))
        found = Engine(plan, options.durability.checkpoint(URL), lambda epoch: execute(plan, epoch), options)
        found.begin()
        return found

    def run(at: Engine) -> None:
        while not at.manifest.ended and at.has_work():
            at.run()

    with served(bucket=Misbehaving(7, trouble=0.0)):
        one = engine("one", query("10us"))
        feed.add("0", ("a", 21), ("b", 22))
        run(one)
        plan = query("10us", "20us")
        part = plan_of(plan, ["counts-20us"])
        backfill = one.backfill(["counts-20us"], plan, part, lambda epoch: execute(part, epoch))
        one.replace(plan, lambda epoch: execute(plan, epoch), None, backfill)
        one.close()
        other = engine("two", query("10us", "20us"))
        feed.add("0", ("a", 23))
        feed.closed = True
        run(other)
        other.close()
        assert not verify(URL).lost
    assert sorted(sink.rows().select("k", "n").rows()) == [("a", 2), ("b", 1)]


def test_offsets_are_read_again_up_to_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a topic, without a broker: a partition that has come since, and records that have, are not part of the history."""
    from springtide.topics import feed as feed_module
    from springtide.topics.client import Client

    first = {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
    found = feed_module._Found({"t": "id"}, first, {("t", 0): 9, ("t", 1): 7, ("t", 2): 5})
    monkeypatch.setattr(Client, "admin", lambda _: None)
    monkeypatch.setattr(feed_module.KafkaFeed, "_look", lambda *_: found)
    source = st.kafka("nowhere:9092", "t", schema={"n": pl.Int64, "ts": st.TIME})
    position = {"topics": {"t": "id"}, "next": {"t:0": 4, "t:1": 0}}
    again = source.upto(position)
    assert again is not None
    taken, at, ended = [], None, False
    while not ended:
        take = feed_module.KafkaFeed(again).take(at, 3, "ts")
        taken += [(s.stream, s.position, s.rows) for s in take.slices]
        at, ended = take.position, take.ended
    assert taken == [("t:0", 0, 3), ("t:0", 3, 1)]
    later = source.upto(position | {"next": {"t:0": 5, "t:1": 1}})
    assert later is not None
    take = feed_module.KafkaFeed(later).take(at, 3, "ts")
    assert [(s.stream, s.position, s.rows) for s in take.slices] == [("t:0", 4, 1), ("t:1", 0, 1)]
    assert take.ended
    latest = st.kafka("nowhere:9092", "t", schema={"n": pl.Int64, "ts": st.TIME}, start="latest")
    assert latest.upto(position) is None
