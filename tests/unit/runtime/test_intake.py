"""What comes into an epoch: inputs attached and detached while running (ST-3), admission (SM-9)."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Read, Slice, Source, Take
from springtide.query.types import END_OF_TIME
from springtide.runtime import admission, inprocess
from springtide.runtime.engine import Engine, Options
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.inprocess import run
from springtide.testing import PAUSE, at, compare, idle

SCHEMA = {"key": pl.String, "ts": st.TIME}


def rows(*seconds: int, key: str = "a") -> list[dict[str, object]]:
    return [{"key": key, "ts": at(f"{s}s")} for s in seconds]


def query(*main: object) -> st.Query:
    source = st.source("calls", st.memory(main, schema=SCHEMA), ts="ts")
    counts = source.aggregate(by="key", window=st.tumbling("10s"), n=st.count(), name="counts")
    return st.Query("intake", counts.to(st.memory_sink(), name="out"))


def result(made: st.Query) -> pl.DataFrame:
    sink = made.step("out")
    return sink.connector.rows()  # type: ignore[attr-defined]


def test_an_attached_input_is_read_from_the_next_epoch_on(tmp_path: Path) -> None:
    """ST-3: an input comes while the query runs.

    main      0  5  | 12 15 | 25 31 |
    attached           7  13 26 30         7 is before the time of the source when it was attached: late
    """
    made = query(*rows(0, 8), PAUSE, *rows(12, 15), PAUSE, *rows(25, 31))
    more = st.memory(rows(7, 13, 26, 30, key="b"), schema=SCHEMA)

    def attach(engine: Engine) -> bool:
        if engine.manifest.epoch == 0:
            engine.intake.attach("calls", "more", more, engine.manifest.sources)
        return True

    engine = run(made.plan(buckets=4), tmp_path, Options(2), between=attach)
    inputs = {"0": rows(0, 8, 12, 15, 25, 31), "more/0": [idle(to="8s"), *rows(7, 13, 26, 30, key="b")]}
    reference = made.run_reference({"calls": inputs})
    compare(result(made), reference.rows("out"))
    assert engine.manifest.sources["calls"].late == 1 == reference.late["calls"].height


def test_a_detached_input_holds_the_others_back_no_longer(tmp_path: Path) -> None:
    """ST-3: an input goes; without it, time moves on."""
    made = query(*rows(0, 8), PAUSE, *rows(12), PAUSE, *rows(25), PAUSE, *rows(31), PAUSE, *rows(45), PAUSE, *rows(55))
    slow = st.memory([item for _ in range(50) for item in (*rows(9, key="b"), PAUSE)], schema=SCHEMA)
    given: list[int] = []

    def steer(engine: Engine) -> bool:
        if engine.manifest.epoch == 0:
            engine.intake.attach("calls", "slow", slow, engine.manifest.sources)
        if engine.manifest.epoch == 3:
            engine.intake.detach("calls", "slow")
        given.append(result(made).height)
        return True

    run(made.plan(buckets=4), tmp_path, Options(2), between=steer)
    assert given[4] == 0, "the slow input held the first window back"
    assert given[5] > 0, "detached, it does not"
    inputs = {"0": rows(0, 8, 12, 25, 31, 45, 55), "slow/0": [idle(to="8s"), *rows(9, 9, 9, key="b")]}
    compare(result(made), made.run_reference({"calls": inputs}).rows("out"))


def test_an_attached_input_goes_on_after_a_restart(tmp_path: Path) -> None:
    made = query(*rows(0, 8), PAUSE, *rows(12), PAUSE, *rows(25), PAUSE, *rows(31))
    more = st.memory([*rows(9, key="b"), PAUSE, *rows(14, key="b"), PAUSE, *rows(28, key="b")], schema=SCHEMA)

    def attach(engine: Engine, at_epoch: int) -> None:
        if engine.manifest.epoch == at_epoch:
            engine.intake.attach("calls", "more", more, engine.manifest.sources)

    def first(engine: Engine) -> bool:
        attach(engine, 0)
        return engine.manifest.epoch < 1

    def second(engine: Engine) -> bool:
        attach(engine, 1)
        return True

    run(made.plan(buckets=4), tmp_path, Options(2), between=first)
    run(made.plan(buckets=4), tmp_path, Options(3), between=second)
    inputs = {"0": rows(0, 8, 12, 25, 31), "more/0": [idle(to="8s"), *rows(9, 14, 28, key="b")]}
    compare(result(made), made.run_reference({"calls": inputs}).rows("out"))


class Growing(Source):
    """A source whose second physical stream is not known before the third epoch."""

    positions = True
    parts = (
        {"0": rows(0, 8)},
        {"0": rows(12, 21)},
        {"0": rows(25), "1": rows(5, 22, key="b")},
        {"1": rows(31, key="b")},
    )

    def schema(self) -> pl.Schema:
        return pl.Schema(SCHEMA)

    def describe(self) -> str:
        return "growing"

    def read_all(self) -> dict[str, Any]:
        raise NotImplementedError

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        number = position or 0
        slices = tuple(Slice(s, 10 * number, len(made), [number, s]) for s, made in self.parts[number].items())
        streams = ("0", "1") if number >= 2 else ("0",)
        ended = number + 1 == len(self.parts)
        return Take(slices, number + 1, dict.fromkeys(streams, END_OF_TIME) if ended else {}, streams, ended)

    def read(self, part: Slice) -> Read:
        number, stream = part.data
        return Read(pl.LazyFrame(self.parts[number][stream], schema=SCHEMA))


def test_a_stream_that_an_input_shows_later_begins_at_the_time_of_its_source(tmp_path: Path) -> None:
    """Time does not go back for any source.

    stream 0    0  8 | 12 21 | 25           |
    stream 1                 | 5 (late) 22  | 31      begins at 21
    """
    counts = st.source("calls", Growing(), ts="ts").aggregate(
        by="key", window=st.tumbling("10s"), n=st.count(), name="counts"
    )
    made = st.Query("intake", counts.to(st.memory_sink(), name="out"))
    engine = run(made.plan(buckets=4), tmp_path, Options(2))
    inputs = {"0": rows(0, 8, 12, 21, 25), "1": [idle(to="21s"), *rows(5, 22, 31, key="b")]}
    compare(result(made), made.run_reference({"calls": inputs}).rows("out"))
    assert engine.manifest.sources["calls"].late == 1


def test_what_cannot_be_attached_is_refused(tmp_path: Path) -> None:
    made = query(*rows(0), PAUSE, *rows(1))
    good = st.memory(rows(1), schema=SCHEMA)
    other = st.memory([{"x": 1}])

    def attempt(engine: Engine) -> bool:
        sources = engine.manifest.sources
        with pytest.raises(st.QueryError, match="did you mean 'calls'"):
            engine.intake.attach("call", "more", good, sources)
        with pytest.raises(st.QueryError, match="has the columns"):
            engine.intake.attach("calls", "more", other, sources)
        with pytest.raises(st.QueryError, match="give a new name"):
            engine.intake.attach("calls", "a/b", good, sources)
        with pytest.raises(st.QueryError, match="has no input 'more'"):
            engine.intake.detach("calls", "more")
        return False

    run(made.plan(buckets=4), tmp_path, between=attempt)


def test_a_burst_makes_more_epochs_not_larger_ones(tmp_path: Path) -> None:
    """SM-9: admission bounds what an epoch takes; the rest waits, and is counted as backlog."""
    made = query(*rows(*range(100)))
    taken: list[tuple[int, int]] = []

    def look(engine: Engine) -> bool:
        if engine.manifest.epoch >= 0:
            taken.append((engine.manifest.metrics.rows, engine.manifest.metrics.backlog))
        return True

    run(made.plan(buckets=4), tmp_path, Options(2, rows_per_epoch=30), between=look)
    assert taken == [(30, 70), (30, 40), (30, 10)]
    assert result(made)["n"].sum() == 100


@pytest.mark.parametrize(("bound", "taken"), [(None, [2, 4, 6, 3]), (4, [4, 4, 4, 3])])
def test_epochs_that_are_over_at_once_grow_unless_somebody_says_how_large_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bound: int | None, taken: list[int]
) -> None:
    monkeypatch.setattr(admission, "USUAL", 2)
    monkeypatch.setattr(admission, "MOST", 6)
    made = query(*rows(*range(15)))
    found: list[int] = []

    def look(engine: Engine) -> bool:
        if engine.manifest.epoch >= 0:
            found.append(engine.manifest.metrics.rows)
        return True

    options = Options(2, rows_per_epoch=bound, timer=lambda: 0.0)  # no time passes
    last = run(made.plan(buckets=4), tmp_path, options, between=look)
    assert [*found, last.manifest.metrics.rows] == taken
    assert result(made)["n"].sum() == 15


def test_an_epoch_that_was_too_large_is_tried_again_with_fewer_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Workers had room for many narrow rows; the ones that come now are wide."""
    monkeypatch.setattr(admission, "USUAL", 2)
    monkeypatch.setattr(admission, "MOST", 8)
    made, tried = query(*rows(*range(20))), list[int]()
    tasks = inprocess.execute

    def execute(plan: Any, epoch: Epoch) -> list[TaskReport]:
        tried.append(sum(part.rows for shares in epoch.slices.values() for parts in shares for part in parts))
        if tried[-1] == 8:
            raise RuntimeError("Python worker exited unexpectedly (crashed)")
        return tasks(plan, epoch)

    with patch.object(inprocess, "execute", execute):
        engine = run(made.plan(buckets=4), tmp_path, Options(2, timer=lambda: 0.0))
    assert tried == [2, 4, 8, 2, 4, 8, 2, 4, 2]
    assert any("tried again with 2 rows of an input at most" in event for _, event in engine.events)
    compare(result(made), made.run_reference().rows("out"))


def test_an_epoch_that_was_ended_by_a_stop_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(admission, "USUAL", 2)
    monkeypatch.setattr(admission, "MOST", 8)
    made, engines, tasks = query(*rows(*range(20))), list[Engine](), inprocess.execute

    def execute(plan: Any, epoch: Epoch) -> list[TaskReport]:
        if epoch.number == 2:
            engines[0].wait_no_longer()
            raise RuntimeError("the job was cancelled")
        return tasks(plan, epoch)

    def look(engine: Engine) -> bool:
        engines[:] = [engine]
        return True

    with patch.object(inprocess, "execute", execute), pytest.raises(RuntimeError, match="cancelled"):
        run(made.plan(buckets=4), tmp_path, Options(2, timer=lambda: 0.0), between=look)


def test_an_epoch_of_the_usual_size_that_fails_is_not_cut_again(tmp_path: Path) -> None:
    made = query(*rows(*range(20)))
    with (
        patch.object(inprocess, "execute", side_effect=RuntimeError("no")),
        pytest.raises(RuntimeError, match="no"),
    ):
        run(made.plan(buckets=4), tmp_path, Options(2))


def test_what_spark_reads_and_what_was_not_read_do_not_make_epochs_larger(tmp_path: Path) -> None:
    """Epochs grow by what they took, of what is read in Python."""
    made = query(*rows(*range(5)))
    admitted: list[tuple[int, int]] = []
    with patch.object(
        admission.Admission, "learn", lambda self, seconds, rows, waiting: admitted.append((rows, waiting))
    ):
        run(made.plan(buckets=4), tmp_path, Options(2, rows_per_epoch=3))
    assert admitted == [(3, 2), (2, 0)]
