"""Active replication (SM-5), with replicas of a query in this process: they give the rows of one run; what does not belong together is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Entry, LedgerSink, Owner, Publication, Target
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.runtime.identity import begin_from
from springtide.runtime.patience import Patience
from springtide.runtime.replicas import group as groups
from springtide.runtime.replicas.cuts import Cut
from springtide.runtime.replicas.group import Group
from springtide.sinks.folder import Folder
from springtide.state.savepoints import save
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served

BUCKETS = 4


def numbers(stream: int, first: int, count: int) -> pl.DataFrame:
    i = pl.int_range(first, first + count, eager=True)
    return pl.DataFrame({"k": (i + stream) % 3, "x": i * 7 % 11, "ts": (i * 1_000_000).cast(st.TIME)})


def query(sink: Any, total: int = 40, name: str = "q") -> st.Query:
    rows = st.source("rows", st.generate(numbers, rate=None, total=total, streams=2), ts="ts")
    sums = rows.aggregate(by="k", window=st.tumbling("5s"), total=st.sum("x"), name="sums")
    return st.Query(name, sums.to(sink, name="out"))


@dataclass
class Runs:
    """Replicas that are run one after the other, or in steps."""

    folder: Path
    group: str | Path = ""
    total: int = 40
    events: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.group = self.group or self.folder / "group"

    def sink(self) -> Any:
        return st.parquet_sink(self.folder / "out")

    def query(self) -> st.Query:
        return query(self.sink(), self.total)

    def options(self, name: str, instances: int = 1, **more: Any) -> Options:
        return Options(instances, rows_per_epoch=4, replica=st.Replicated(self.group, name, after="10ms"), **more)

    def run(self, name: str, epochs: int | None = None, instances: int = 1, **more: Any) -> Engine:
        """Run a replica up to an epoch, or to its end."""
        engine = inprocess.run(
            self.query().plan(buckets=BUCKETS),
            self.folder / name,
            self.options(name, instances, **more),
            between=None if epochs is None else lambda e: e.manifest.epoch + 1 < epochs,
        )
        self.events[name] = [text for _, text in engine.events]
        return engine

    def by(self) -> list[str]:
        """Who published each epoch."""
        store = Store.at(self.group)
        return [json.loads(store.read(path))["by"] for path in store.list(groups.DONE)]

    def check(self) -> None:
        found, wanted = pl.read_parquet(self.folder / "out" / "*.parquet"), self.query().run_reference().rows()
        keys = ["k", "window_start"]
        assert found.sort(keys).equals(wanted.select(found.columns).sort(keys))


def test_one_goes_on_where_another_is_gone_and_who_comes_back_catches_up(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 3)
    runs.run("b", 5, instances=3)
    runs.run("a", 7, instances=2)
    runs.run("c")
    runs.run("a")
    runs.check()
    assert runs.by() == ["a"] * 3 + ["b"] * 2 + ["a"] * 2 + ["c"] * 3
    assert [m.name for m in Group(Store.at(runs.group)).members()] == ["a", "b", "c"]


def test_the_same_over_files_whose_ledger_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.runtime.ledgers.RECENT", 2)
    (tmp_path / "in").mkdir()
    for first in range(0, 48, 4):
        numbers(0, first, 4).write_parquet(tmp_path / "in" / f"{first:04d}.parquet")

    class Files(Runs):
        def query(self) -> st.Query:
            schema = dict(numbers(0, 0, 1).schema)
            rows = st.source("rows", st.parquet(self.folder / "in", schema=schema), ts="ts")
            sums = rows.aggregate(by="k", window=st.tumbling("5s"), total=st.sum("x"), name="sums")
            return st.Query("q", sums.to(self.sink(), name="out"))

    runs = Files(tmp_path)
    for name, epochs in (("a", 4), ("b", 6), ("a", 9), ("b", None), ("a", None)):
        runs.run(name, epochs)
    runs.check()
    assert set(runs.by()) == {"a", "b"}


def test_a_new_replica_begins_with_a_savepoint_of_another(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 4)
    begin_from(save(tmp_path / "a", "for-b"), runs.query().plan(buckets=BUCKETS), tmp_path / "b")
    runs.run("b", 6, instances=2)
    runs.run("a")
    runs.check()
    assert runs.by()[4:6] == ["b", "b"]


def test_a_replica_that_is_stopped_leaves_no_epoch_unpublished(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 4)

    def stop(engine: Engine) -> bool:
        if engine.manifest.epoch == 5:
            engine.wait_no_longer()  # while the sixth is at work
        return engine.manifest.epoch < 6

    inprocess.run(runs.query().plan(buckets=BUCKETS), tmp_path / "b", runs.options("b"), between=stop)
    assert runs.by() == ["a"] * 4 + ["b"] * 3


def test_a_query_that_ran_alone_becomes_the_first_replica(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    plan = runs.query().plan(buckets=BUCKETS)
    inprocess.run(plan, tmp_path / "a", Options(rows_per_epoch=4), between=lambda e: e.manifest.epoch < 2)
    runs.run("a", 5)
    begin_from(save(tmp_path / "a", "for-b"), plan, tmp_path / "b")
    runs.run("b")
    runs.check()
    with pytest.raises(st.CheckpointError, match=r"cannot take part .*; .*new checkpoint"):
        runs.run("empty")


def test_code_is_changed_in_one_replica_after_the_other(tmp_path: Path) -> None:
    """Each is stopped and started again while the other is at work; whether the rows are the same is compared."""
    runs = Folds(tmp_path)
    for name, epochs, code in (("a", 3, ByRow), ("b", 5, ByRow), ("a", 7, ByColumn), ("b", 9, ByColumn)):
        runs.code = code
        runs.run(name, epochs)
    runs.code = Mistaken
    with pytest.raises(st.OtherRows, match="replicas b and a made different rows"):
        runs.run("a")
    runs.code = ByColumn
    runs.run("b")
    assert runs.by() == ["a"] * 3 + ["b"] * 2 + ["a"] * 2 + ["b"] * (len(runs.by()) - 7)
    found, wanted = pl.read_parquet(tmp_path / "out" / "*.parquet"), runs.query().run_reference().rows()
    assert sorted(found.rows()) == sorted(wanted.select(found.columns).rows())


class ByRow(st.KeyOperator):
    """A running total for each key; who says its version says that any code of it gives the same."""

    version = "1"
    state: ClassVar = {"total": pl.Int64}
    output: ClassVar = {"k": pl.Int64, "n": pl.Int64, "ts": st.TIME}

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {"total": 0}

    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        rows = []
        for ts, x in tuples.select("ts", "x").iter_rows():
            state["total"] += x
            rows.append({"k": key[0], "n": state["total"], "ts": ts})
        return rows


class ByColumn(ByRow):
    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        before, state["total"] = state["total"], state["total"] + tuples["x"].sum()
        return tuples.select(k=pl.lit(key[0]), n=before + pl.col("x").cum_sum(), ts="ts").to_dicts()


class Mistaken(ByRow):
    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        return [row | {"n": row["n"] + 1} for row in super().process(key, state, tuples, ready_ts)]


for _code in (ByRow, ByColumn, Mistaken):  # one class, as a file has it before and after it was edited
    _code.__name__ = _code.__qualname__ = "Fold"


@dataclass
class Folds(Runs):
    """Replicas whose code a test changes."""

    code: type[st.KeyOperator] = ByRow

    def query(self) -> st.Query:
        rows = st.source("rows", st.generate(numbers, rate=None, total=self.total, streams=2), ts="ts")
        folded = rows.operator(self.code(), keys="k", name="fold")
        return st.Query("q", folded.to(self.sink(), name="out"))


# ── a publisher that does not come to the end ─────────────────────────────────────────────────────────────────────────


class Died(BaseException):
    """A process that is gone: nothing is tidied up."""


def die_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    act = getattr(owner, name)

    def dies(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, act)
        if after:
            act(*given, **named)
        raise Died

    monkeypatch.setattr(owner, name, dies)


@dataclass
class Table:
    """A target with transactions."""

    entry: Entry | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class TableTarget(Target):
    table: Table

    def entry(self) -> Entry | None:
        return self.table.entry

    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        if self.table.entry != before:
            return False
        self.table.entry = after
        self.table.rows += publication.frame().to_dicts() if publication is not None else []
        return True


@dataclass(frozen=True)
class TableSink(LedgerSink):
    table: Table

    def describe(self) -> str:
        return "a table"

    def connect(self, owner: Owner) -> Target:
        return TableTarget(self.table)


PLACES = [
    (Group, "take", True),
    (Folder, "_stage", False),
    (Folder, "_stage", True),
    (Folder, "_record", True),
    (Folder, "_reveal", True),
    (Group, "finish", False),
    (Group, "finish", True),
]


@pytest.mark.parametrize(("owner", "step", "after"), PLACES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_what_a_dead_replica_began_another_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, after: bool
) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 2)
    with monkeypatch.context() as patch:
        die_at(patch, owner, step, after=after)
        patch.setattr(Engine, "close", lambda self: self.storage.release())
        with pytest.raises(Died):
            runs.run("a", instances=2)
    runs.run("b", 5, instances=3 if after else 1)
    runs.run("a")
    runs.check()


def test_a_dead_publisher_is_not_waited_for_however_long_there_was_no_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, now, waited = Runs(tmp_path), [0.0], [0.0]
    runs.run("a", 3)

    def wait(_: Patience, seconds: float) -> None:
        now[0] += seconds
        waited[0] += seconds

    def silence(engine: Engine) -> bool:
        now[0] += 3600.0
        return engine.manifest.epoch < 5

    monkeypatch.setattr(Patience, "_wait", wait)
    options = runs.options("b", timer=lambda: now[0])
    inprocess.run(runs.query().plan(buckets=BUCKETS), tmp_path / "b", options, between=silence)
    assert runs.by() == ["a"] * 3 + ["b"] * 3
    assert waited[0] < 1.0


@pytest.mark.parametrize("step", ["take", "finish"])
def test_the_same_for_a_target_with_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    table = Table()

    class Rows(Runs):
        def sink(self) -> Any:
            return TableSink(table)

    runs = Rows(tmp_path)
    with monkeypatch.context() as patch:
        die_at(patch, Group, step, after=step == "take")
        patch.setattr(Engine, "close", lambda self: self.storage.release())
        with pytest.raises(Died):
            runs.run("a")
    runs.run("b", 5, instances=2)
    runs.run("a")
    wanted = runs.query().run_reference().rows()
    keys = ["k", "window_start"]
    found = pl.DataFrame(table.rows, schema=wanted.schema)
    assert found.sort(keys).equals(wanted.sort(keys))


@pytest.mark.parametrize("instances", [1, 3])
def test_files_in_a_store_that_a_dead_replica_recorded_and_did_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instances: int
) -> None:
    class InStore(Runs):
        def sink(self) -> Any:
            return st.parquet_sink("fake://bucket/out")

    from springtide.sinks.bucket import Bucket

    with served(bucket=Misbehaving(1, trouble=0.0)):
        runs = InStore(tmp_path, "fake://bucket/group")
        runs.run("a", 2)
        with monkeypatch.context() as patch:
            die_at(patch, Bucket, "_show", after=False)
            patch.setattr(Engine, "close", lambda self: self.storage.release())
            with pytest.raises(Died):
                runs.run("a", instances=3)
        runs.run("b", instances=instances)
        store = Store.at("fake://bucket/out")
        names = [name for name in store.list() if name.endswith(".parquet")]
        found = pl.concat([pl.read_parquet(store.read(name)) for name in names])
        wanted = runs.query().run_reference().rows()
        keys = ["k", "window_start"]
        assert found.sort(keys).equals(wanted.select(found.columns).sort(keys))


def test_a_replica_that_is_slow_to_begin_is_not_refused_for_what_others_have_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its question whether anything is published and its look at the sinks, another publishes some epochs."""
    runs, done = Runs(tmp_path), Group.done

    def slow(group: Group, epoch: int) -> Any:
        found = done(group, epoch)
        monkeypatch.setattr(Group, "done", done)
        runs.run("a", 3)
        return found

    monkeypatch.setattr(Group, "done", slow)
    runs.run("b")
    runs.check()
    assert runs.by()[:3] == ["a"] * 3


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_that_cannot_be_read_twice_or_that_stay_in_one_process_are_refused(tmp_path: Path) -> None:
    by_hand = st.source("rows", st.memory([{"x": 1}], schema={"x": pl.Int64}))
    plan = st.Query("q", by_hand.to(st.parquet_sink(tmp_path / "out"))).plan()
    with pytest.raises(st.QueryError, match=r"rows .source.: .*each read all rows.* memory"):
        inprocess.run(plan, tmp_path / "a", Options(replica=st.Replicated(tmp_path / "group", "a")))
    plan = query(st.memory_sink()).plan()
    with pytest.raises(st.QueryError, match=r"out .sink.: rows in memory .*replicas"):
        inprocess.run(plan, tmp_path / "a", Options(replica=st.Replicated(tmp_path / "group", "a")))
    assert not (tmp_path / "group").exists()
    assert not (tmp_path / "a").exists()


def test_another_query_another_target_and_another_polars_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 2)
    replica = st.Replicated(runs.group, "b")
    other = query(runs.sink(), name="other").plan(buckets=BUCKETS)
    with pytest.raises(st.ReplicaError, match="is of the query 'q', and not of 'other'"):
        inprocess.run(other, tmp_path / "b", Options(replica=replica))
    elsewhere = query(st.parquet_sink(tmp_path / "elsewhere")).plan(buckets=BUCKETS)
    with pytest.raises(st.ReplicaError, match=r"another form .*: the sink out "):
        inprocess.run(elsewhere, tmp_path / "c", Options(replica=replica))
    monkeypatch.setattr("springtide.runtime.identity.fingerprint", lambda: "another")
    with pytest.raises(st.ReplicaError, match=r"was begun with Polars .*, which hashes in another way"):
        runs.run("d", 2)
    assert [m.name for m in Group(Store.at(runs.group)).members()] == ["a"]


def test_a_name_belongs_to_one_checkpoint_until_it_is_released(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 2)
    plan = runs.query().plan(buckets=BUCKETS)
    with pytest.raises(
        st.ReplicaError, match=f"has a replica a already, with the checkpoint {tmp_path}/a; give another"
    ):
        inprocess.run(plan, tmp_path / "b", runs.options("a"))
    assert Group(Store.at(runs.group)).release("a")
    assert not Group(Store.at(runs.group)).release("a")
    inprocess.run(plan, tmp_path / "b", runs.options("a"))
    runs.check()


def test_a_replicas_checkpoint_does_not_run_alone_nor_in_another_group(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 2)
    plan = runs.query().plan(buckets=BUCKETS)
    with pytest.raises(st.CheckpointError, match="is a replica's: other replicas may run"):
        inprocess.run(plan, tmp_path / "a", Options())
    with pytest.raises(st.CheckpointError, match="belongs to a replica in another group than"):
        inprocess.run(plan, tmp_path / "a", Options(replica=st.Replicated(tmp_path / "other", "a")))
    assert not (tmp_path / "other").exists()


def test_a_state_that_came_about_elsewhere_is_refused(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 4)
    plan = query(st.parquet_sink(tmp_path / "out"), 40).plan(buckets=BUCKETS)
    alone = query(st.parquet_sink(tmp_path / "elsewhere"), 40).plan(buckets=BUCKETS)
    inprocess.run(alone, tmp_path / "b", Options(rows_per_epoch=8), between=lambda e: e.manifest.epoch < 2)
    with pytest.raises(st.CheckpointError, match=r"state of its own.* epoch 2.*cannot take part.*; .*new checkpoint"):
        inprocess.run(plan, tmp_path / "b", runs.options("b"))


def test_a_cut_that_goes_on_from_elsewhere_is_refused(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run("a", 2)
    Group(Store.at(runs.group)).propose(2, Cut("elsewhere", "x", {}))
    with pytest.raises(st.ReplicaError, match="has an epoch 2 that continues from elsewhere"):
        runs.run("a")


def test_a_savepoint_of_an_epoch_that_nobody_published_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path)
    with monkeypatch.context() as patch:
        die_at(patch, Group, "take", after=False)
        patch.setattr(Engine, "close", lambda self: self.storage.release())
        with pytest.raises(Died):
            runs.run("a")
    begin_from(save(tmp_path / "a", "for-b"), runs.query().plan(buckets=BUCKETS), tmp_path / "b")
    time = iter(range(10**6))
    with pytest.raises(st.ReplicaError, match="has not published epoch 0, which this replica's savepoint is of"):
        runs.run("b", timer=lambda: float(next(time)))
    runs.run("a")
    runs.check()


# ── alarms, and what is forgotten ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "published"), [("b", "a"), ("a", "a before")], ids=["another's", "its own"])
def test_other_rows_are_an_alarm_and_what_was_published_stays(tmp_path: Path, name: str, published: str) -> None:
    def odd(stream: int, first: int, count: int) -> pl.DataFrame:
        return numbers(stream, first, count).with_columns(x=pl.col("x") + 1)

    def made(rows: Any) -> Any:
        source = st.source("rows", st.generate(rows, rate=None, total=40, streams=2), ts="ts")
        sums = source.aggregate(by="k", window=st.tumbling("5s"), total=st.sum("x"), name="sums")
        return st.Query("q", sums.to(st.parquet_sink(tmp_path / "out"), name="out")).plan(buckets=BUCKETS)

    runs = Runs(tmp_path)
    runs.run("a", 6)
    group = Group(Store.at(runs.group))
    group.release("a")  # so that a new checkpoint can have the name
    text = rf"replicas {published} and {name} .*different rows .*; .*of {published} count"
    with pytest.raises(st.OtherRows, match=text):
        inprocess.run(made(odd), tmp_path / "odd", runs.options(name))
    (alarm,) = group.alarms()
    assert "for the sink out both have" in alarm
    group.release(name)
    runs.run("a")
    runs.check()
    assert f"alarm: {alarm}" in runs.events["a"]


def test_what_nobody_needs_is_forgotten_and_a_replica_that_was_away_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("springtide.runtime.replicas.replica._TRIM", 1)
    monkeypatch.setattr("springtide.runtime.replicas.replica._REPORT", 0.0)
    monkeypatch.setattr("springtide.runtime.replicas.replica.KEPT", 1)
    runs = Runs(tmp_path)
    store = Store.at(tmp_path / "group")
    runs.run("b", 2)
    runs.run("a", 6)
    assert min(store.list(groups.CUTS)) == "cuts/000000001"  # b has yet to do the next one
    Group(store).release("b")
    runs.run("a", 8)
    assert min(store.list(groups.CUTS)) > "cuts/000000004"
    with pytest.raises(st.ReplicaError, match=r"after epoch 1.*replica b.*; .*new checkpoint"):
        runs.run("b")
    with pytest.raises(st.ReplicaError, match="no longer has what came after epoch -1, where replica c is"):
        runs.run("c")
    for name in ("b", "c"):
        Group(store).release(name)
    runs.run("a")
    runs.check()


def test_a_limit_holds_for_a_replica_that_never_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.runtime.replicas.replica._TRIM", 1)
    monkeypatch.setattr("springtide.runtime.replicas.replica.KEPT", 1)
    monkeypatch.setattr("springtide.runtime.replicas.replica.LONGEST", 3)
    runs = Runs(tmp_path)
    runs.run("b", 1)
    runs.run("a")
    assert len(Store.at(tmp_path / "group").list(groups.CUTS)) == 4


def test_inputs_are_not_attached_to_one_replica(tmp_path: Path) -> None:
    runs = Runs(tmp_path)

    def attach(engine: Engine) -> bool:
        with pytest.raises(st.QueryError, match="cannot be attached to one replica"):
            engine.attach("rows", "more", st.generate(numbers, rate=None, total=4))
        return False

    inprocess.run(runs.query().plan(buckets=BUCKETS), tmp_path / "a", runs.options("a"), between=attach)


def test_idle_streams_are_agreed_upon(tmp_path: Path) -> None:
    """What one replica's clock finds idle, another does not: it takes what was decided."""
    for name in ("left", "right"):
        (tmp_path / name).mkdir()

    def plan() -> Any:
        schema = dict(numbers(0, 0, 1).schema)
        sides = [
            st.source(n, st.parquet(tmp_path / n, schema=schema, follow=True), ts="ts", idle_after="10s")
            for n in ("left", "right")
        ]
        sums = st.union(*sides).aggregate(by="k", window=st.tumbling("5s"), total=st.sum("x"), name="sums")
        return st.Query("q", sums.to(st.parquet_sink(tmp_path / "out"), name="out")).plan(buckets=BUCKETS)

    def engine(name: str, timer: Callable[[], float]) -> Engine:
        made = plan()
        options = Options(replica=st.Replicated(tmp_path / "group", name), timer=timer)
        found = Engine(
            made, options.durability.checkpoint(tmp_path / name), lambda e: inprocess.execute(made, e), options
        )
        found.begin()
        return found

    numbers(0, 0, 20).write_parquet(tmp_path / "left" / "0.parquet")
    numbers(0, 0, 4).write_parquet(tmp_path / "right" / "0.parquet")
    now = [0.0]
    a, b = engine("a", lambda: now[0]), engine("b", lambda: 0.0)
    try:
        for _ in range(2):  # the rows; then time alone, for the right side is idle by the clock of a
            for one in (a, b):
                assert one.has_work()
                one.run()
            now[0] = 60.0
        assert a.manifest.sources["right"].times == b.manifest.sources["right"].times
        assert a.manifest.sources["right"].times == a.manifest.sources["left"].times
        assert pl.read_parquet(tmp_path / "out" / "*.parquet").height
    finally:
        a.close()
        b.close()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(st.QueryError, match="cannot be the name of a replica"):
        st.Replicated("group", "a/b")
    with pytest.raises(st.QueryError, match="is too short"):
        st.Replicated("group", "a", after="1ms")
    assert replace(st.Replicated("group", "a"), after="2s").seconds == 2.0
