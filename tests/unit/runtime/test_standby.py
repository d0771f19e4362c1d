"""Standing by: what a run that waits does with a leader that works, dies, ends or is stopped."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.runtime import epochs as epochs_module
from springtide.runtime import inprocess, publishing
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.failpoints import PLACES
from springtide.runtime.spark import standby as standby_on_spark
from springtide.runtime.standby import Seen, StandbyEnded, StoreLead, Successor, standby_of
from springtide.sinks.memory import MemorySink
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Sighting
from springtide.state.errors import AwayError, CheckpointError
from springtide.state.history import History
from springtide.state.log import Slot
from springtide.state.manifest import Manifest
from springtide.state.names import MARKER, RUNNING
from springtide.state.pulse import Sign
from springtide.state.stores import Store
from springtide.testing import compare
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.runtime import swapping
from tests.unit.runtime.crashing import every_row_is_there_once, run_files, write_input
from tests.unit.runtime.test_remote import URL, query
from tests.unit.state.test_checkpoint import IDENTITY


class Waiting:
    """A run that stands by, whose time passes only while it sleeps; what happens then is up to the test."""

    def __init__(self, root: Path, **given: object) -> None:
        self.root, self.now, self.told = root, 0.0, list[str]()
        self.happens: dict[int, Callable[[], object]] = {}
        self.looks = self.warmed = 0
        standby = st.Standby("5s", told=self.told.append, **given)  # type: ignore[arg-type]
        checkpoint = Checkpoint(root)
        self.lead = StoreLead(standby, Seen(checkpoint, checkpoint.store), lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.looks += 1
        assert self.looks < 100, "it waits for ever"
        self.happens.get(self.looks, lambda: None)()

    def sign(self, number: int, **more: object) -> Callable[[], None]:
        text = Sign("process 1 on a", 0.0, 1.0, number, **more).encode()  # type: ignore[arg-type]
        return lambda: Store.at(self.root).write(RUNNING, text)

    def warm(self) -> None:
        self.warmed += 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lease = Checkpoint(tmp_path / "ckpt").acquire(IDENTITY)
    lease.commit(Manifest(epoch=0, generation=lease.generation))
    lease.release()
    return tmp_path / "ckpt"


def test_nobody_runs(root: Path, tmp_path: Path) -> None:
    assert Waiting(root).lead.wait(lambda: None).last == Slot(0, 1)
    nothing = Waiting(tmp_path / "new").lead.wait(lambda: None)
    assert (nothing.made, nothing.last) == (False, None)


def test_it_waits_while_there_are_signs_and_goes_on_after_them(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()
    waiting.happens = {n: waiting.sign(n) for n in range(1, 11)}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 15.0
    assert waiting.warmed == 15
    assert waiting.told == ["standing by for process 1 on a"]


def test_a_run_that_hands_over_is_followed_at_once(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()
    waiting.happens = {2: (root / RUNNING).unlink}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 2.0


def test_a_query_that_is_stopped_needs_no_standby(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()
    waiting.happens = {2: waiting.sign(1, stopped=True)}
    with pytest.raises(StandbyEnded, match="somebody stopped the query"):
        waiting.lead.wait(waiting.warm)
    Waiting(root).lead.wait(lambda: None)  # started afterwards it goes on


def test_a_run_without_signs_is_known_by_its_lock(root: Path) -> None:
    lease, waiting = Checkpoint(root).acquire(IDENTITY), Waiting(root)
    waiting.happens = {7: lease.release}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 7.0


def test_the_waiting_can_be_ended(root: Path) -> None:
    waiting = Waiting(root, cancelled=lambda: True)
    waiting.sign(0)()
    with pytest.raises(StandbyEnded, match="was ended"):
        waiting.lead.wait(waiting.warm)


def test_a_store_that_is_away_is_no_dead_run(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()

    def away() -> None:
        (root / RUNNING).unlink()
        (root / RUNNING).mkdir()

    def back() -> None:
        (root / RUNNING).rmdir()
        waiting.sign(1)()

    waiting.happens = {2: away, 30: back}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 35.0
    assert "cannot be read" in waiting.told[1]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(st.QueryError, match="too short"):
        st.Standby("1ms")
    with pytest.raises(st.QueryError, match="zk://"):
        st.Standby(lease="etcd://there")
    assert standby_of(None) is standby_of(False) is None
    assert standby_of(True) == st.Standby()


# ── a query that was replaced meanwhile ───────────────────────────────────────────────────────────────────────────


def leader(
    folder: Path,
    epochs: int,
    *,
    replaces: bool = False,
    by: Callable[[Path], st.Query] = swapping.replaced,
    elastic: st.Elastic | None = None,
) -> None:
    """Run some epochs of a query, which may be replaced then; or what decides about its instances may be."""
    old, new = (form(folder).plan(buckets=8) for form in (swapping.first, by))
    seen = list[int]()

    def between(engine: Engine) -> bool:
        seen.append(engine.manifest.epoch)
        if elastic is not None and engine.form.elastic != elastic:
            engine.change_elasticity(elastic)
        if len(seen) > epochs and replaces:
            engine.replace(new, lambda epoch: inprocess.execute(new, epoch), None)
        return len(seen) <= epochs

    inprocess.run(old, folder / "checkpoint", Options(2, rows_per_epoch=10), between=between)


def successor(folder: Path, told: list[str], reload: Callable[[], st.Query] | None) -> Successor:
    again = None if reload is None else lambda: (reload(), st.Elastic(max=2))
    options = Options(3, rows_per_epoch=10, reload=again)
    plan, place = swapping.first(folder).plan(buckets=8), Checkpoint(folder / "checkpoint")
    return Successor(plan, options, place, st.Standby(told=told.append))


def take_over(folder: Path, one: Successor, standby: st.Standby, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand by where it is the run's turn at once, and run to the end."""
    place = Checkpoint(folder / "checkpoint")

    class Now:
        def wait(self, keep_warm: Callable[[], None]) -> Sighting:
            return Seen(place, place.store).sighting()

        def resign(self) -> None:
            pass

    def begin(plan: Plan, options: Options, resign: Callable[[], None]) -> Any:
        return inprocess.run(plan, folder / "checkpoint", options)

    monkeypatch.setattr(standby_on_spark, "lead_of", lambda *_: Now())
    monkeypatch.setattr(standby_on_spark, "_Warm", lambda *_: lambda: None)
    return standby_on_spark.stand_by(None, one.plan, place, standby, one.options, begin)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [OSError("no route to host"), AwayError("s3://b", "is away", "wait")], ids=type)
def test_a_store_that_is_away_when_it_is_its_turn_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It happens exactly when a run is needed: what took the leader away has taken the store away too, for a while."""
    write_input(tmp_path)
    leader(tmp_path, 1)
    told, failures = list[str](), 3
    one = successor(tmp_path, told, None)
    follow = Successor.follow

    def away(self: Successor) -> bool:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise error
        return follow(self)

    monkeypatch.setattr(Successor, "follow", away)
    monkeypatch.setattr(standby_on_spark.time, "sleep", lambda _: None)
    assert take_over(tmp_path, one, st.Standby(told=told.append), monkeypatch).manifest.ended
    assert [text.partition(": ")[0] for text in told] == ["standing by; the store cannot be read"] * 3


def test_a_run_that_stands_by_reads_its_file_again_when_the_query_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_input(tmp_path)
    leader(tmp_path, 1)
    told = list[str]()
    one = successor(tmp_path, told, lambda: swapping.replaced(tmp_path))
    one.options = replace(one.options, instances={"numbers": 2, "counts-of": 3, "sums-of": 4})
    assert not one.look(), "the query is what it was"
    leader(tmp_path, 1, replaces=True)
    assert one.look()
    assert not one.look()
    assert one.options.elastic == st.Elastic(max=2)
    assert one.options.instances == {"numbers": 2, "sums-of": 4}, "the new form has no other of these steps"

    engine = take_over(tmp_path, one, st.Standby(told=told.append), monkeypatch)
    assert engine.manifest.ended
    assert told == []
    copied = pl.read_parquet(tmp_path / "copy" / "*.parquet").sort("x")
    assert (copied["double"] / copied["x"]).to_list()[1:] == [2.0] * 19 + [3.0] * 40
    compare(pl.read_parquet(tmp_path / "sums" / "*.parquet"), swapping.first(tmp_path).run_reference().rows("sums"))


def with_another_sink(folder: Path) -> st.Query:
    query = swapping.first(folder)
    (source,) = query.of_kind(steps.Source).values()
    copy = st.Stream(source, steps.OUT, source.schema).to(st.parquet_sink(folder / "raw"), name="raw")
    return st.Query("files", *query.of_kind(steps.Sink).values(), copy)


def from_elsewhere(folder: Path) -> st.Query:
    shutil.copytree(folder / "in", folder / "moved", dirs_exist_ok=True)
    return swapping.first(folder, "moved")


@pytest.mark.parametrize("form", [with_another_sink, from_elsewhere])
def test_nor_does_it_miss_other_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Callable[[Path], st.Query]
) -> None:
    """Its steps are what they were: any start could have such sources and sinks. But whoever takes over has those of the run at work."""
    write_input(tmp_path)
    leader(tmp_path, 1)
    told, late = list[str](), list[str]()
    one = successor(tmp_path, told, lambda: form(tmp_path))
    others = [successor(tmp_path, late, None), successor(tmp_path, late, lambda: swapping.first(tmp_path))]
    leader(tmp_path, 1, replaces=True, by=form)
    assert one.look()
    assert not one.look()
    for other in others:
        assert not other.look()
        with pytest.raises(CheckpointError, match=r"since epoch 2\. .*; .*start (it|this run) again"):
            other.follow()
    assert len(late) == len(others)
    assert take_over(tmp_path, one, st.Standby(told=told.append), monkeypatch).manifest.ended
    assert told == []
    compare(pl.read_parquet(tmp_path / "sums" / "*.parquet"), swapping.first(tmp_path).run_reference().rows("sums"))
    if form is with_another_sink:
        raw = pl.read_parquet(tmp_path / "raw" / "*.parquet")["x"].sort().to_list()
        assert raw == list(range(20, 60)), "every row from the change on"
    else:
        assert one.plan.graph.of_kind(steps.Source)["numbers"].connector.describe().endswith("moved")


def test_a_run_that_stands_by_has_the_policy_that_the_run_at_work_was_given(tmp_path: Path) -> None:
    write_input(tmp_path)
    leader(tmp_path, 1)
    told, now = list[str](), [st.Elastic(max=2)]
    one, helpless = successor(tmp_path, told, None), successor(tmp_path, told, None)
    one.options = replace(one.options, reload=lambda: (swapping.first(tmp_path), now[0]))
    leader(tmp_path, 1, elastic=st.Elastic(max=3))
    assert not one.look()
    assert one.options.elastic == st.Elastic(max=2), "what its file has now"
    assert not helpless.look()
    assert not helpless.follow(), "it is refused to nobody"
    assert helpless.options.elastic is None
    now[0] = st.Elastic(max=3)
    assert not one.look(), "the query is what it was"
    assert one.options.elastic == st.Elastic(max=3)
    now[0] = st.Elastic(max=4)
    assert not one.look()
    assert one.options.elastic == st.Elastic(max=3), "it is read again only if the run at work has something else"
    assert [text.partition(": step (standby): ")[2] for text in told] == [
        "what was read again is something else; bring its file up to date here",
        "it has what it was started with; start it again with the new settings",
    ]


def tripled(folder: Path) -> st.Query:
    query = swapping.first(folder)
    (source,), sinks = query.of_kind(steps.Source).values(), query.of_kind(steps.Sink)
    triple = st.Stream(source, steps.OUT, source.schema).map(double=pl.col("x") * 3)
    sinks["copy"] = triple.to(st.parquet_sink(folder / "copy"), name="copy")
    return st.Query("files", *sinks.values())


def test_a_folder_may_have_another_name_on_each_machine(tmp_path: Path) -> None:
    """Other names here than there do not mean that the query was not read again."""
    write_input(tmp_path)
    (tmp_path / "mount").symlink_to(tmp_path)
    leader(tmp_path, 1)
    told = list[str]()
    one = successor(tmp_path, told, lambda: tripled(tmp_path / "mount"))
    one.plan = swapping.first(tmp_path / "mount").plan(buckets=8)
    leader(tmp_path, 1, replaces=True, by=tripled)
    assert one.look()
    assert not one.look()
    assert told == []


def broken() -> st.Query:
    raise st.QueryError("x (source)", "it is another one", "keep it")


def mistaken() -> st.Query:
    raise ZeroDivisionError("not today")


def forgetful() -> Any:
    return None


@pytest.mark.parametrize(
    ("reload", "said"),
    [
        (lambda _: None, "; start it again"),
        (lambda folder: lambda: swapping.first(folder), "not that form; bring its file"),
        (lambda _: broken, "step x .source.: it is another one"),
        (lambda _: mistaken, r"step reload= .function.: .*ZeroDivisionError: not today"),
        (lambda _: forgetful, r"step reload= .function.: .*; return the query"),
    ],
    ids=["no file", "an old file", "a broken file", "a function with a mistake", "a function that returns nothing"],
)
def test_one_that_cannot_have_the_new_form_says_so_while_there_is_time(tmp_path: Path, reload: Any, said: str) -> None:
    write_input(tmp_path)
    leader(tmp_path, 1)
    told = list[str]()
    one = successor(tmp_path, told, reload(tmp_path))
    leader(tmp_path, 1, replaces=True)
    assert not one.look()
    assert not one.look()
    (only,) = told
    assert re.search(rf"replaced.*per-minute was removed.*{said}", only)
    with pytest.raises(CheckpointError, match=said):
        one.follow()
    swapping.run_on(tmp_path, is_replaced=True)  # nothing was taken, or lost


def test_another_query_or_another_version_does_not_stand_by(tmp_path: Path) -> None:
    write_input(tmp_path)
    leader(tmp_path, 1)
    place = Checkpoint(tmp_path / "checkpoint")
    other = query(MemorySink()).plan(buckets=8)
    with pytest.raises(CheckpointError, match="belongs to the query 'files', not"):
        Successor(other, Options(), place, st.Standby())
    marker = json.loads((place.root / MARKER).read_text())

    def say(**what: Any) -> None:
        (place.root / MARKER).write_text(json.dumps(marker | what))

    say(identity=marker["identity"] | {"hash": "another", "polars": "9.9.9"})
    with pytest.raises(CheckpointError, match=r"another hash of keys \(Polars 9\.9\.9.*use Polars 9\.9\.9"):
        successor(tmp_path, [], None)
    say(format=99)
    with pytest.raises(CheckpointError, match=r"has format 99.*use a newer version of Springtide"):
        successor(tmp_path, [], None)


# ── a store that is slow, a clock that is wrong ───────────────────────────────────────────────────────────────────


def test_a_store_that_answers_slowly_is_no_dead_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look takes longer than a run may be silent: what counts is whether the run has given a sign between two of them."""
    waiting, numbers = Waiting(root), iter(range(1, 1000))
    waiting.sign(0)()
    slow = Store.read

    def read(store: Store, path: str) -> bytes:
        if path == RUNNING and waiting.looks < 20:
            waiting.now += 30.0
            found = slow(store, path)
            waiting.sign(next(numbers))()
            return found
        return slow(store, path)

    monkeypatch.setattr(Store, "read", read)
    waiting.lead.wait(waiting.warm)
    assert waiting.looks >= 24, "it waited while there were signs, and then as long as is usual"


# ── what goes over ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Listening:
    """A policy that notes how many reports it is given."""

    heard: list[int]

    def decide(self, snapshot: st.Snapshot, history: Sequence[st.Snapshot]) -> Sequence[st.Proposal]:
        self.heard.append(len(history))
        return ()


def epochs(where: str | Path, node: Path, count: int, behind: float = 0.0) -> list[int]:
    """Run so many epochs more of a query, and return how many reports a policy was given before each; the clock may be behind."""
    policy, ran = Listening([]), list[int]()

    def between(engine: Engine) -> bool:
        ran.append(engine.manifest.epoch)
        return len(ran) <= count

    elastic = st.Elastic(policy=st.Learned(policy), every=0.0, balancing=None)
    options = Options(
        2, rows_per_epoch=5, elastic=elastic, durability=Durability(cache=node), clock=lambda: time.time() - behind
    )
    inprocess.run(query(MemorySink()).plan(buckets=8), where, options, between=between)
    return policy.heard


def test_what_earlier_runs_measured_is_not_forgotten(tmp_path: Path) -> None:
    assert epochs(tmp_path / "ckpt", tmp_path, 3) == [0, 1, 2]
    assert epochs(tmp_path / "ckpt", tmp_path, 2) == [3, 4]
    for part in (tmp_path / "ckpt" / "history").glob("snapshots-*"):
        part.write_text('{"forged": 1}\n[]\nno JSON\n')
    assert epochs(tmp_path / "ckpt", tmp_path, 2) == [0, 1]


def test_a_clock_that_is_minutes_behind_does_not_go_back(tmp_path: Path) -> None:
    """What policies learn from is a matter of seconds between epochs: a time before the last one would make them wait until it is over."""
    assert epochs(tmp_path / "ckpt", tmp_path, 2) == [0, 1]
    assert epochs(tmp_path / "ckpt", tmp_path, 3, behind=600.0) == [2, 3, 4]
    times = [record["time"] for record in History(tmp_path / "ckpt").read("snapshots")]
    assert times == sorted(times)
    assert times[-1] - times[0] < 600.0


def test_nor_on_another_node(tmp_path: Path) -> None:
    with served(bucket=Misbehaving(7, trouble=0.0)):
        assert epochs(URL, tmp_path / "one", 3) == [0, 1, 2]
        assert epochs(URL, tmp_path / "two", 2) == [3, 4]


@pytest.mark.parametrize("place", PLACES)
def test_a_leader_that_is_overtaken_at_any_step_can_neither_commit_nor_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It sleeps at that step of its third epoch while another takes over and runs to the end; then it wakes up."""
    write_input(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)  # as on two machines
    visits = list[str]()

    def sleep(at: str) -> None:
        visits.append(at)
        if at == place and visits.count(place) == 3:
            run_files(tmp_path, 2, None)

    for module in (epochs_module, publishing):
        monkeypatch.setattr(module, "failpoint", sleep)
    with pytest.raises(st.SpringtideError, match=r"taken over|stale|lost rows"):
        run_files(tmp_path, 1, None)
    every_row_is_there_once(tmp_path)


@pytest.mark.parametrize("place", PLACES)
def test_nor_can_one_that_is_overtaken_while_it_replaces_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It sleeps in the first epoch of the new form; the other one goes on in the form that was committed by then."""
    write_input(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    committed, slept = place not in ("before-job", "after-job"), list[str]()

    def sleep(at: str) -> None:
        latest = Checkpoint(tmp_path / "checkpoint").latest()
        epoch = -1 if latest is None else latest.epoch
        if at == place and epoch == swapping.AFTER + committed and not slept:
            slept.append(at)
            swapping.run_on(tmp_path, is_replaced=committed)

    def begin(engine: Engine) -> None:
        for module in (epochs_module, publishing):
            monkeypatch.setattr(module, "failpoint", sleep)

    with pytest.raises(st.SpringtideError, match=r"taken over|stale|lost rows"):
        swapping.run_and_replace(tmp_path, None, before=begin)
    assert slept
    copied = pl.read_parquet(tmp_path / "copy" / "*.parquet").sort("x")
    factors = (copied["double"] / copied["x"]).to_list()[1:]
    assert copied["x"].to_list() == list(range(60)), "every row once"
    assert set(factors) == ({2, 3} if committed else {2})
    compare(pl.read_parquet(tmp_path / "sums" / "*.parquet"), swapping.first(tmp_path).run_reference().rows("sums"))
