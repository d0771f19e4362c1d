"""User operators: state per key, time, timers, several keys, and what goes wrong (ST-2, ST-4, SM-1)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import UserCodeError
from springtide.testing import END, at, compare, idle, streams, table
from tests.wording import says

S = st.source("s", st.memory(schema={"ts": st.TIME, "k": pl.String, "x": pl.Int64}), ts="ts")
ROWS = table("ts k x \n 1s a 1 \n 2s b 2 \n 3s a 3")


class RunningSum(st.KeyOperator):
    """The sum of each key so far."""

    state: ClassVar = {"total": pl.Int64}
    output: ClassVar = {"k": pl.String, "total": pl.Int64, "ts": st.TIME}

    def init(self, key: Any) -> Any:
        return {"total": 0}

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        out = []
        for x, ts in tuples.select("x", "ts").iter_rows():
            state["total"] += x
            out.append({"k": key[0], "total": state["total"], "ts": ts})
        return out


class Calls(st.BucketOperator[Any]):
    """Says how it was called: one state, a list of what happened."""

    output: ClassVar = {"what": pl.String, "n": pl.Int64, "ts": st.TIME}

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def init(self) -> Any:
        self.log.append(("init",))
        return {"n": 0}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        state["n"] += tuples.height
        self.log.append(("process", tuples["x"].to_list(), ready_ts // 10**6))
        return tuples.select(what=pl.col("k"), n=pl.lit(state["n"], dtype=pl.Int64), ts=pl.col("ts"))

    def on_time(self, state: Any, ready_ts: int) -> None:
        self.log.append(("on_time", state["n"], ready_ts if ready_ts == st.END_OF_TIME else ready_ts // 10**6))

    def free(self, state: Any) -> None:
        self.log.append(("free", state["n"]))


# ── bucket operators ──────────────────────────────────────────────────────────────────────────────────────────────


def test_bucket_operator_without_keys_has_one_state(rows_of: Any) -> None:
    """Time comes to x, then the tuples at x come one at a time, then the end."""
    calls = Calls()
    rows = table("ts k x \n 1s a 1 \n 2s b 2 \n 2s a 3")
    found = rows_of(S.operator(calls), {"s": rows})
    compare(found, table("what n ts \n a 1 1s \n b 2 2s \n a 3 2s"))
    assert calls.log == [
        ("init",),
        ("on_time", 0, 1),
        ("process", [1], 1),
        ("on_time", 1, 2),
        ("process", [2], 2),
        ("process", [3], 2),
        ("on_time", 3, st.END_OF_TIME),
        ("free", 3),
    ]


def test_bucket_operator_with_keys_has_a_state_per_key(rows_of: Any) -> None:
    """`on_time` reaches every known state, in the order of the keys."""
    calls = Calls()
    rows_of(S.operator(calls, keys="k"), {"s": table("ts k x \n 1s b 1 \n 2s a 2 \n 3s b 3")})
    assert calls.log == [
        ("init",),
        ("process", [1], 1),
        ("on_time", 1, 2),
        ("init",),
        ("process", [2], 2),
        ("on_time", 1, 3),
        ("on_time", 1, 3),
        ("process", [3], 3),
        ("on_time", 1, st.END_OF_TIME),
        ("free", 1),
        ("on_time", 2, st.END_OF_TIME),
        ("free", 2),
    ]


def test_only_ready_tuples_in_the_total_order(rows_of: Any) -> None:
    """Unbounded: the merged time is 2, so that only the tuples before it are ready; time comes to it in the end."""
    calls = Calls()
    rows = streams(b=table("ts k x \n 0s b 1 \n 2s b 2"), a=table("ts k x \n 1s a 3 \n 5s a 4"))
    rows_of(S.operator(calls), {"s": rows}, bounded=False)
    assert calls.log[-6:] == [
        ("on_time", 0, 0),
        ("process", [1], 0),
        ("on_time", 1, 1),
        ("process", [3], 1),
        ("on_time", 2, 2),
        ("free", 2),
    ]


def test_the_one_state_is_there_before_any_tuple(rows_of: Any) -> None:
    calls = Calls()
    rows_of(S.operator(calls), {"s": []})
    assert calls.log == [("init",), ("on_time", 0, st.END_OF_TIME), ("free", 0)]


class Windows(st.BucketOperator[Any]):
    """Counts per 10 s, closed by time: rows that nobody's tuple causes."""

    output: ClassVar = {"n": pl.Int64, "ts": st.TIME}

    def init(self) -> Any:
        return {}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> None:
        for ts in tuples["ts"].cast(pl.Int64):
            end = ts // 10_000_000 * 10_000_000 + 10_000_000
            state[end] = state.get(end, 0) + 1

    def on_time(self, state: Any, ready_ts: int) -> Any:
        closed = sorted(end for end in state if end <= ready_ts)
        rows = {"n": [state.pop(end) for end in closed], "ts": [end - 1 for end in closed]}
        return pl.DataFrame(rows, schema=self.output)


def test_on_time_gives_rows(rows_of: Any) -> None:
    rows = table("ts k x \n 1s a 1 \n 2s a 2 \n 12s a 3 \n 25s a 4")
    own = rows_of(S.operator(Windows()), {"s": rows})
    counted = rows_of(S.aggregate(window=st.tumbling("10s"), n=st.count()), {"s": rows})
    compare(own, counted.select("n", "ts"))


# ── several keys ──────────────────────────────────────────────────────────────────────────────────────────────────

TWEETS = st.source("tweets", st.memory(schema={"ts": st.TIME, "tags": pl.List(pl.String), "n": pl.Int64}), ts="ts")


class Longest(st.BucketOperator[Any]):
    """The longest tweet of each hashtag so far (ST-2): one tuple, several keys."""

    output: ClassVar = {"tag": pl.String, "n": pl.Int64, "ts": st.TIME}

    def init(self) -> Any:
        return {}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        rows = []
        for tags, n, ts in tuples.select("own_keys", "n", "ts").iter_rows():
            for tag in tags:
                if n > state.get(tag, 0):
                    state[tag] = n
                    rows.append({"tag": tag, "n": n, "ts": ts})
        return pl.DataFrame(rows, schema=self.output)


def test_a_tuple_reaches_the_state_of_each_of_its_different_keys(rows_of: Any) -> None:
    """A repeated key counts once; a tuple without keys reaches none; null is a key like others."""
    rows = table("""
        ts  tags               n
        1s  ["a","b","a"]      5
        2s  ["b",None]         3
        3s  []                 9
        4s  null               9
        5s  ["b"]              7
    """)
    expected = table("tag n ts \n a 5 1s \n b 5 1s \n null 3 2s \n b 7 5s")
    compare(rows_of(TWEETS.operator(Longest(), keys="tags"), {"tweets": rows}), expected)


def test_own_keys_of_a_key_operator(rows_of: Any) -> None:
    class Show(st.KeyOperator):
        state: ClassVar = {"n": pl.Int64}
        output: ClassVar = {"key": pl.String, "own": pl.List(pl.String), "all": pl.List(pl.String), "ts": st.TIME}

        def init(self, key: Any) -> Any:
            return {"n": 0}

        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            return [
                {"key": key[0], "own": own, "all": tags, "ts": ready_ts}
                for own, tags in tuples.select("own_keys", "tags").iter_rows()
            ]

    found = rows_of(TWEETS.operator(Show(), keys="tags"), {"tweets": table('ts tags n \n 1s ["b","a"] 1')})
    assert found.drop("ts").rows() == [("a", ["a"], ["b", "a"]), ("b", ["b"], ["b", "a"])]


# ── key operators ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_key_operator(rows_of: Any) -> None:
    found = rows_of(S.operator(RunningSum(), keys="k"), {"s": ROWS})
    compare(found, table("k total ts \n a 1 1s \n b 2 2s \n a 4 3s"))


def test_keys_are_given_as_python_values(rows_of: Any) -> None:
    seen = []

    class Keys(RunningSum):
        def init(self, key: Any) -> Any:
            seen.append(key)
            return {"total": 0}

        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            return []

    s = st.source("s", st.memory(schema={"ts": st.TIME, "d": pl.Datetime("ms"), "x": pl.Int64}), ts="ts")
    rows = [{"ts": at("1s"), "d": datetime(2024, 1, 1), "x": 1}, {"ts": at("2s"), "d": None, "x": 1}]
    rows_of(s.operator(Keys(), keys=["d", "x"]), {"s": rows})
    assert seen == [(None, 1), (datetime(2024, 1, 1), 1)]


def test_a_key_that_is_not_kept_begins_again(rows_of: Any) -> None:
    class UpTo(RunningSum):
        def keep(self, key: Any, state: Any) -> bool:
            return bool(state["total"] < 3)

    rows = table("ts k x \n 1s a 1 \n 2s a 2 \n 3s a 1")
    assert rows_of(S.operator(UpTo(), keys="k"), {"s": rows})["total"].to_list() == [1, 3, 1]


class Quiet(st.KeyOperator):
    """Says when a key has been quiet for 5 s, and how many tuples there were until then."""

    state: ClassVar = {"n": pl.Int64, "due": pl.Int64}
    output: ClassVar = {"k": pl.String, "n": pl.Int64, "ts": st.TIME}
    timer = "due"

    def init(self, key: Any) -> Any:
        return {"n": 0, "due": None}

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        state["n"] += tuples.height
        state["due"] = tuples["ts"].cast(pl.Int64)[-1] + 5_000_000
        return []

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        n, state["n"], state["due"] = state["n"], 0, None
        return [{"k": key[0], "n": n, "ts": ready_ts}]


def test_timers_go_off_between_tuples_and_once_at_the_end(rows_of: Any) -> None:
    """A timer is set anew by each tuple.

    time   1   2   3       7   8         20          25
    a      ·       ·           ⏰2        ·           ⏰1  at the end
    b          ·           ⏰1
    """
    rows = table("ts k x \n 1s a 0 \n 2s b 0 \n 3s a 0 \n 20s a 0")
    compare(rows_of(S.operator(Quiet(), keys="k"), {"s": rows}), table("k n ts \n b 1 7s \n a 2 8s \n a 1 25s"))
    unbounded = rows_of(S.operator(Quiet(), keys="k"), {"s": rows}, bounded=False)
    compare(unbounded, table("k n ts \n b 1 7s \n a 2 8s"))


def test_a_timer_goes_off_before_the_tuples_of_its_time(rows_of: Any) -> None:
    rows = table("ts k x \n 1s a 0 \n 6s a 0")
    compare(rows_of(S.operator(Quiet(), keys="k"), {"s": rows}), table("k n ts \n a 1 6s \n a 1 11s"))


class Ticks(st.KeyOperator):
    """Every 10 s after the first tuple."""

    state: ClassVar = {"due": pl.Int64}
    output: ClassVar = {"k": pl.String, "ts": st.TIME}
    timer = "due"

    def init(self, key: Any) -> Any:
        return {"due": None}

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        state["due"] = state["due"] or ready_ts + 10_000_000
        return []

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        state["due"] = ready_ts + 10_000_000
        return [{"k": key[0], "ts": ready_ts}]


def test_a_periodic_timer_goes_on_while_time_does_and_once_more_at_the_end(rows_of: Any) -> None:
    """The last time that anybody heard of is 35 s here, 60 s there; then each timer that is set goes off once."""
    ticks = S.operator(Ticks(), keys="k")

    def of_a(rows: Any, **options: Any) -> list[int]:
        found = rows_of(ticks, {"s": rows}, **options).filter(k="a")["ts"]
        return [ts // 10**6 for ts in found.cast(pl.Int64)]

    rows = table("ts k x \n 0s a 0 \n 35s b 0")
    assert of_a(rows) == [10, 20, 30, 40]
    assert of_a([*rows, idle(to="60s")]) == [10, 20, 30, 40, 50, 60, 70]
    assert of_a([*rows, END, idle(to="60s")]) == [10, 20, 30, 40, 50, 60, 70]
    assert of_a([*rows, idle(to="60s")], bounded=False) == [10, 20, 30, 40, 50, 60]
    assert of_a(streams(p=rows[:1], q=rows[1:])) == [10, 20, 30, 40]


def test_a_timer_set_into_the_past_goes_off_at_the_time_of_what_set_it(rows_of: Any) -> None:
    class Past(Ticks):
        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            state["due"] = 0
            return []

        def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
            state["due"] = None
            return [{"k": key[0], "ts": ready_ts}]

    rows = table("ts k x \n 5s a 0 \n 5s a 1 \n 9s a 2")
    compare(rows_of(S.operator(Past(), keys="k"), {"s": rows}), table("k ts \n a 5s \n a 9s"))


def test_output_of_an_operator_is_ordered_by_content(rows_of: Any) -> None:
    totals = S.operator(RunningSum(), keys="k").aggregate(window=st.tumbling("1m"), all=st.collect("k"))
    rows = table("ts k x \n 1s b 1 \n 1s a 1")
    assert rows_of(totals, {"s": rows})["all"].to_list() == [["a", "b"]]


def test_ts_of_a_key_operators_row_may_be_a_datetime_or_microseconds(rows_of: Any) -> None:
    for ts in (at("9s"), datetime(1970, 1, 1, 0, 0, 9), 9_000_000):

        class Give(RunningSum):
            given = ts

            def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
                return [{"k": None, "total": 1, "ts": self.given}]

        assert rows_of(S.operator(Give(), keys="k"), {"s": ROWS[:1]})["ts"].to_list() == [at("9s")]


# ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────────


def key_operator(result: Any, **more: Any) -> st.KeyOperator:
    """A KeyOperator that returns this."""

    def process(self: Any, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        return result

    return type("Wrong", (RunningSum,), {"process": process, **more})()


def bucket_operator(result: Any) -> st.BucketOperator[Any]:
    """A BucketOperator that returns this."""

    def process(self: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        return result

    return type("Wrong", (Calls,), {"process": process})()


ROW = {"k": "a", "total": 1, "ts": at("1s")}


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (
            key_operator([{**ROW, "tota": 1}]),
            "column 'tota'",
        ),
        (key_operator([{"k": "a", "ts": at("1s")}]), "Wrong.process gave no column 'total'; give every column"),
        (
            key_operator([{**ROW, "total": "1"}]),
            "Wrong.process gave a row with a wrong value, column 'total': '1' is not i64",
        ),
        (key_operator([{**ROW, "ts": None}]), "Wrong.process … ts None; … datetime"),
        (
            key_operator([{**ROW, "ts": at("999ms")}]),
            "gave a row at ts 999000, earlier … 1000000; ",
        ),
        (key_operator(None), "Wrong.process returned None; return a list of rows"),
        (key_operator([5]), "Wrong.process returned a list; … each a dict"),
        (
            key_operator([], init=lambda self, key: {"n": 0}),
            "Wrong.init left the state {'n': 0}, but its columns are total",
        ),
        (
            key_operator([], init=lambda self, key: {"total": 0.5}),
            "Wrong.init left the state with a wrong value, column 'total'",
        ),
        (
            key_operator([], init=lambda self, key: 1 / 0),
            "Wrong.init raised ZeroDivisionError: division by zero; correct",
        ),
        (bucket_operator(5), "Wrong.process returned an int; return a frame"),
        (bucket_operator(pl.DataFrame({"what": ["a"], "ts": [at("1s")]})), "Wrong.process gave no column 'n'"),
        (
            bucket_operator(pl.DataFrame({"what": ["a"], "n": [1.0], "ts": [at("1s")]})),
            "'n' as f64, not i64; cast it",
        ),
        (
            bucket_operator(pl.DataFrame({"what": ["a"], "n": [1], "ts": [None]}, schema=Calls.output)),
            "Wrong.process gave a row without ts; ",
        ),
        (
            bucket_operator(pl.DataFrame({"what": ["a"], "n": [1], "ts": [0]}, schema=Calls.output)),
            "Wrong.process gave a row at ts 0, earlier … 1000000",
        ),
    ],
)
def test_wrong_operator(rows_of: Any, operator: Any, message: str) -> None:
    """The error names the step, says what is wrong, and what to do."""
    with pytest.raises(UserCodeError) as error:
        rows_of(S.operator(operator, keys="k", name="mine"), {"s": ROWS})
    assert str(error.value).startswith("step mine (operator): ")
    assert says(error.value, *message.split(" … "))


def test_an_exception_names_the_row_and_keeps_its_traceback(rows_of: Any) -> None:
    class Divide(RunningSum):
        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            return [{"k": key[0], "total": 6 // tuples["x"][0], "ts": ready_ts}]

    rows = [{"ts": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "k": "a", "x": 0}]
    with pytest.raises(UserCodeError, match=r"Divide.process raised ZeroDivisionError: .*'k': 'a', 'x': 0") as error:
        rows_of(S.operator(Divide(), keys="k"), {"s": rows})
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_timer_that_is_left_in_the_past_is_an_error(rows_of: Any) -> None:
    class Stuck(Ticks):
        def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
            return []

    with pytest.raises(UserCodeError, match="on_time left the timer at 10000000"):
        rows_of(S.operator(Stuck(), keys="k"), {"s": table("ts k x \n 0s a 0")})


# ── rows that go wrong, and are rejected ──────────────────────────────────────────────────────────────────────────


class Strict(RunningSum):
    """Does not take negative numbers, but only says so when it has spoilt its state."""

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        given = super().process(key, state, tuples, ready_ts)
        if (tuples["x"] < 0).any():
            raise ValueError("a negative number")
        return given


class StrictBucket(st.BucketOperator[Any]):
    """The same for all keys of a bucket."""

    output: ClassVar = RunningSum.output

    def init(self) -> Any:
        return {}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        rows = []
        for k, x, ts in tuples.select("k", "x", "ts").iter_rows():
            state[k] = state.get(k, 0) + x
            rows.append({"k": k, "total": state[k], "ts": ts})
        if (tuples["x"] < 0).any():
            raise ValueError("a negative number")
        return pl.DataFrame(rows, schema=self.output)


@pytest.mark.parametrize("operator", [Strict(), StrictBucket()])
def test_a_rejected_row_leaves_no_trace(operator: Any) -> None:
    """What the state was before is what it is after; the row is at the side output, with the reason."""
    rows = table("ts k x \n 1s a -5 \n 2s a 1 \n 3s b 2 \n 4s a -1 \n 4s a 3")
    summed = S.operator(operator, keys="k", on_error="reject", name="sums")
    query = st.Query(
        "q", summed.to(st.memory_sink(), name="sums-out"), summed.rejected.to(st.memory_sink(), name="bad")
    )
    result = query.run_reference({"s": rows})
    compare(result.rows("sums-out"), table("k total ts \n a 1 2s \n b 2 3s \n a 4 4s"))
    reason = f"{type(operator).__name__}.process raised ValueError: a negative number"
    compare(result.rows("bad"), [row | {"reason": reason} for row in table("ts k x \n 1s a -5 \n 4s a -1")])


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (lambda: key_operator([{"k": "a"}]), "Wrong.process gave no column 'total'"),
        (
            lambda: key_operator([{"k": "a", "total": 1, "ts": 0}]),
            "Wrong.process gave a row at ts 0, earlier",
        ),
        (lambda: bucket_operator(5), "Wrong.process returned an int"),
    ],
)
def test_wrong_output_rejects_the_row(operator: Any, reason: str) -> None:
    wrong = S.operator(operator(), keys="k", on_error="reject")
    query = st.Query("q", wrong.to(st.memory_sink(), name="out"), wrong.rejected.to(st.memory_sink(), name="bad"))
    result = query.run_reference({"s": ROWS})
    assert result.rows("out").height == 0
    assert result.rows("bad")["x"].to_list() == [1, 2, 3]
    assert all(found.startswith(reason) for found in result.rows("bad")["reason"])


def test_each_key_of_a_list_takes_or_rejects_the_tuple_for_itself() -> None:
    class NoA(Longest):
        def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
            if any("a" in own for own in tuples["own_keys"].to_list()):
                raise ValueError("no a")
            return super().process(state, tuples, ready_ts)

    longest = TWEETS.operator(NoA(), keys="tags", on_error="reject")
    query = st.Query("q", longest.to(st.memory_sink(), name="out"), longest.rejected.to(st.memory_sink(), name="bad"))
    result = query.run_reference({"tweets": table('ts tags n \n 1s ["a","b","a"] 5')})
    assert result.rows("out")["tag"].to_list() == ["b"]
    assert result.rows("bad").select("tags", "n").rows() == [(["a", "b", "a"], 5)]


@pytest.mark.parametrize("method", ["init", "on_time"])
def test_errors_without_a_row_fail_all_the_same(rows_of: Any, method: str) -> None:
    operator = type("Wrong", (Quiet,), {method: lambda self, *_: 1 / 0})()
    with pytest.raises(UserCodeError, match=f"Wrong.{method} raised ZeroDivisionError"):
        rows_of(S.operator(operator, keys="k", on_error="reject"), {"s": ROWS})


def test_an_empty_frame_is_nothing(rows_of: Any) -> None:
    assert rows_of(S.operator(bucket_operator(pl.DataFrame())), {"s": ROWS}).height == 0
