"""What users' code does wrong is told with the step, the bucket and the first offending row, or rejects the row (ST-4, SM-1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import UserCodeError
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import at, compare, table
from tests.unit.operators.user.operators import ROWS, Counts, Quiet, Sum, Told, run_all, source


def wrong_key(result: Any = (), **changes: Any) -> st.KeyOperator:
    """An operator whose `process` gives this for numbers above 3."""

    def process(self: Any, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        given = Sum.process(self, key, state, tuples, ready_ts)
        return result if (tuples["x"] > 3).any() else given

    made: st.KeyOperator = type("Wrong", (Quiet if "timer" in changes else Sum,), {"process": process} | changes)()
    return made


def wrong_bucket(result: Any = None, **changes: Any) -> st.BucketOperator[Any]:
    def process(self: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        given = Counts.process(self, state, tuples, ready_ts)
        return result if (tuples["x"] > 3).any() else given

    made: st.BucketOperator[Any] = type(
        "Wrong", (Told if "on_time" in changes else Counts,), {"process": process} | changes
    )()
    return made


def fails(self: Any, *_: Any) -> Any:
    raise ZeroDivisionError("division by zero")


def too_large(self: Any, *args: Any) -> Any:
    """Is `process` of either kind of operator: the tuples come before the time."""
    if (args[-2]["x"] > 3).any():
        raise ValueError("too large")
    return [] if isinstance(self, st.KeyOperator) else None


def spoils(self: Any, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
    state["total"] = "much" if (tuples["x"] > 3).any() else 1
    return []


ROW = {"k": "a", "total": 1, "ts": at("1h")}
OUT = {"k": ["a"], "n": [1], "ts": [at("1h")]}
MISTAKES: list[Callable[[], Any]] = [
    lambda: wrong_key(None),
    lambda: wrong_key(5),
    lambda: wrong_key("rows"),
    lambda: wrong_key([5]),
    lambda: wrong_key([{"k": "a", "ts": 5}]),
    lambda: wrong_key([ROW | {"more": 1}]),
    lambda: wrong_key([ROW, ROW | {"total": 1.5}]),
    lambda: wrong_key([ROW, ROW | {"ts": None}]),
    lambda: wrong_key([ROW | {"ts": 2**70}]),
    lambda: wrong_key([ROW, ROW | {"ts": at("1s")}]),
    lambda: wrong_key(process=too_large),
    lambda: wrong_key(process=spoils),
    lambda: wrong_key(init=fails),
    lambda: wrong_key(init=lambda self, key: {"n": 0}),
    lambda: wrong_key(init=lambda self, key: 5),
    lambda: wrong_key(keep=fails),
    lambda: wrong_key([], timer="due", process=Quiet.process, on_time=fails),
    lambda: wrong_key([], timer="due", process=Quiet.process, on_time=lambda self, key, state, ready_ts: []),
    lambda: wrong_key(
        [], timer="due", process=Quiet.process, on_time=lambda self, key, state, ready_ts: [ROW | {"ts": 0}]
    ),
    lambda: wrong_bucket(5),
    lambda: wrong_bucket(pl.DataFrame(OUT).drop("n")),
    lambda: wrong_bucket(pl.DataFrame(OUT).with_columns(more=1)),
    lambda: wrong_bucket(pl.DataFrame(OUT).cast({"n": pl.Float64})),
    lambda: wrong_bucket(pl.DataFrame(OUT | {"ts": [None]}, schema=Counts.output)),
    lambda: wrong_bucket(pl.DataFrame(OUT | {"ts": [at("1s")]}, schema=Counts.output)),
    lambda: wrong_bucket(process=too_large),
    lambda: wrong_bucket(init=fails),
    lambda: wrong_bucket(pl.DataFrame(OUT), on_time=fails),
]
STILL_FAIL = [12, 13, 14, 16, 17, 18, 26, 27]
"""Those that no row is to blame for: in `init`, `on_time` and timers."""


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_an_error_names_the_step_the_bucket_and_the_first_offending_row(number: int, tmp_path: Path) -> None:
    """In the words of the reference. The row is one of several of its key and its epoch."""
    rows = table("ts k x\n 1s a 1\n 2s a 2\n PAUSE\n 3s a 3\n 4s a 4\n 5s a 5\n 6s a 6\n PAUSE\n 30s a 1")
    query = st.Query("q", source(rows).operator(MISTAKES[number](), keys="k", name="mine").to(st.memory_sink()))
    with pytest.raises(UserCodeError) as expected:
        query.run_reference()
    with pytest.raises(UserCodeError) as raised:
        run(query.plan(), tmp_path, Options(2))
    label = re.fullmatch(r"mine \(operator\), bucket \d+", raised.value.step)
    assert label
    found = (raised.value.problem, raised.value.hint, str(raised.value.row))
    assert found == (expected.value.problem, expected.value.hint, str(expected.value.row))


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_rows_are_rejected_one_by_one(number: int, tmp_path: Path) -> None:
    """What `process` does wrong costs the row and nothing else; everything else fails all the same."""
    rows = table("ts k x\n 1s a 1\n 2s b 9\n PAUSE\n 3s a 3\n 4s a 4\n 4s b 1\n 5s a 5\n PAUSE\n 30s a 1")
    stream = source(rows).operator(MISTAKES[number](), keys="k", on_error="reject", name="mine")
    if number in STILL_FAIL:
        with pytest.raises(UserCodeError, match=r"Wrong.(init|on_time) |on_time left"):
            run_all(stream, tmp_path)
        return
    _, manifests = run_all(stream, tmp_path, rejected=stream.rejected)
    rejected = st.Query("q", stream.rejected.to(st.memory_sink())).run_reference().rows()
    assert set(rejected["k"]) == {"a", "b"}
    counted = sum(sum(m.metrics.subqueries["mine"].rejected) for m in manifests)
    assert counted == rejected.height


def test_an_exception_keeps_its_cause_and_the_epoch_can_be_run_again(tmp_path: Path) -> None:
    class Fragile(Sum):
        broken = True

        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            if self.broken and (tuples["x"] == 4).any():
                raise RuntimeError("out of order")
            return super().process(key, state, tuples, ready_ts)

    fragile, sink = Fragile(), st.memory_sink()
    query = st.Query("q", source(ROWS).operator(fragile, keys="k").to(sink))
    with pytest.raises(UserCodeError, match=r"Fragile.process raised RuntimeError: out of order") as raised:
        run(query.plan(), tmp_path, Options(2))
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert raised.value.row is not None
    fragile.broken = False
    run(query.plan(), tmp_path, Options(3))
    compare(sink.rows(), query.run_reference().rows())


def test_code_that_only_fails_with_many_tuples_gets_them_one_by_one(tmp_path: Path) -> None:
    class Small(Sum):
        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            assert tuples.height < 2
            return super().process(key, state, tuples, ready_ts)

    class SmallBucket(Counts):
        def process(self, state: Any, tuples: Any, ready_ts: int) -> Any:
            assert tuples.height < 2
            return super().process(state, tuples, ready_ts)

    run_all(source(ROWS).operator(Small(), keys="k"), tmp_path / "keys")
    counts = SmallBucket()
    run_all(source(ROWS).operator(counts), tmp_path / "buckets")
    assert counts.live == 0


@pytest.mark.parametrize("method", ["serialize", "deserialize", "free"])
def test_errors_of_the_other_methods_name_the_bucket(method: str, tmp_path: Path) -> None:
    operator = type("Wrong", (Counts,), {method: fails})()
    query = st.Query("q", source(ROWS).operator(operator, name="mine").to(st.memory_sink()))
    message = rf"step mine \(operator\), bucket 0: Wrong.{method} raised ZeroDivisionError"
    with pytest.raises(UserCodeError, match=message):
        run(query.plan(), tmp_path)


def test_serialize_must_give_a_frame(tmp_path: Path) -> None:
    operator = type("Wrong", (Counts,), {"serialize": lambda self, state: state})()
    query = st.Query("q", source(ROWS).operator(operator, name="mine").to(st.memory_sink()))
    with pytest.raises(UserCodeError, match=r"Wrong.serialize returned a dict; .*DataFrame"):
        run(query.plan(), tmp_path)
