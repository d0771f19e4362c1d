"""The test kit: tables, comparisons, operators on trial."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.testing import END, FAIL, PAUSE, at, check_operator, compare, idle, memory_sink, streams, table

# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_table_reads_cells() -> None:
    rows = table("""
        a     b      c     d    e       f        g
        1     -2.5   null  10s  "5s"    [1,"x"]  word
        true  false  nan   -1s  'true'  []       a-b
        PAUSE
        FAIL
        idle 10s
        END
    """)
    assert rows[0] == {"a": 1, "b": -2.5, "c": None, "d": at("10s"), "e": "5s", "f": [1, "x"], "g": "word"}
    assert math.isnan(rows[1].pop("c"))  # type: ignore[union-attr]
    assert rows[1] == {"a": True, "b": False, "d": at("-1s"), "e": "true", "f": [], "g": "a-b"}
    assert rows[2:] == [PAUSE, FAIL, idle(to="10s"), END]


def test_table_with_a_cell_too_many() -> None:
    with pytest.raises(ValueError, match=r"'1 2 3' has 3 cells.* 2 columns"):
        table("a b \n 1 2 3")


def test_names_that_tests_use() -> None:
    assert streams(a=[], b=[END]) == {"a": [], "b": [END]}
    assert memory_sink is st.memory_sink
    assert repr([END, PAUSE, FAIL, idle(to="2s")]) == "[END, PAUSE, FAIL, idle(2000000)]"


# ── compare ───────────────────────────────────────────────────────────────────────────────────────────────────────


def frame(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame(columns)


def test_compare_takes_rows_in_any_order_and_counts_them() -> None:
    compare(frame(x=[1, 2, 2]), frame(x=[2, 1, 2]))
    with pytest.raises(AssertionError, match="0 rows changed, 1 missing, 1 extra"):
        compare(frame(x=[1, 2, 2]), frame(x=[1, 1, 2]))
    with pytest.raises(AssertionError, match=r"0 rows changed, 1 missing, 0 extra \(1 given, 2 expected\)"):
        compare(frame(x=[1]), frame(x=[1, 1]))


def test_compare_looks_at_the_schema_first() -> None:
    with pytest.raises(AssertionError) as error:
        compare(frame(x=[1], y=["a"]), frame(x=[1.0], z=["a"]))
    assert str(error.value) == "the columns differ\n  'x' is i64, expected f64\n  'z' is missing\n  'y' is extra"
    with pytest.raises(AssertionError, match="the order is x, y; expected y, x"):
        compare(frame(x=[1], y=[1]), frame(y=[1], x=[1]))
    with pytest.raises(AssertionError, match="the columns differ"):
        compare(frame(x=[]), pl.DataFrame(schema={"x": pl.Int8}))


def test_compare_floats_within_the_tolerance() -> None:
    compare(frame(x=[0.1 + 0.2]), frame(x=[0.3]))
    compare(frame(x=[1e20]), frame(x=[1e20 + 1e10]))
    compare(frame(x=[0.0]), frame(x=[1e-15]))
    compare(frame(x=[-0.0]), frame(x=[0.0]))
    for a, b in ((1.0, 1.000001), (1e20, 1.000001e20), (math.nan, 1.0), (math.inf, -math.inf), (math.inf, 1e308)):
        with pytest.raises(AssertionError):
            compare(frame(x=[a]), frame(x=[b]))
    compare(frame(x=[1.0]), frame(x=[1.000001]), float_tolerance=1e-5)
    with pytest.raises(AssertionError):
        compare(frame(x=[0.1 + 0.2]), frame(x=[0.3]), float_tolerance=0)


def test_compare_nan_nulls_lists_and_structs() -> None:
    nested = [[1.0, math.nan], None, []]
    compare(frame(x=[math.nan, None]), frame(x=[None, math.nan]))
    compare(frame(x=nested), frame(x=nested[::-1]))
    compare(frame(x=[[0.1 + 0.2]]), frame(x=[[0.3]]))
    compare(frame(x=[{"a": 0.1 + 0.2, "b": "x"}]), frame(x=[{"a": 0.3, "b": "x"}]))
    with pytest.raises(AssertionError):
        compare(frame(x=[[1, 2]]), frame(x=[[2, 1]]))
    with pytest.raises(AssertionError):
        compare(frame(x=[[1.0, 2.0]]), frame(x=[[1.0]]))


def test_compare_matches_near_rows_whose_order_is_not_the_same() -> None:
    """Sorted by the first column, the rows would be paired the wrong way round."""
    actual = frame(x=[1.0, 1.0 + 1e-12], y=[1.0, 2.0])
    expected = frame(x=[1.0 + 1e-12, 1.0], y=[1.0, 2.0])
    compare(actual, expected)


def test_compare_sees_nanoseconds() -> None:
    one = pl.DataFrame({"t": [1]}, schema={"t": pl.Datetime("ns")})
    with pytest.raises(AssertionError):
        compare(one, pl.DataFrame({"t": [2]}, schema={"t": pl.Datetime("ns")}))


def test_compare_with_rows_written_by_hand() -> None:
    actual = pl.DataFrame(
        {"ts": [at("1s")], "n": [1], "d": [None]}, schema={"ts": st.TIME, "n": pl.UInt8, "d": pl.Decimal(5, 2)}
    )
    compare(actual, table("ts n \n 1s 1"))
    compare(actual, [{"ts": at("1s"), "n": 1, "d": None}])
    for wrong in ({"ts": at("1s"), "n": "1"}, {"ts": at("1s"), "m": 1}, {"ts": at("1s"), "d": 1}):
        with pytest.raises(AssertionError, match="the expected rows do not have the types"):
            compare(actual, [wrong])
    compare(actual.with_columns(d=Decimal("0.50")).cast(actual.schema), [{"ts": at("1s"), "n": 1, "d": Decimal("0.5")}])
    compare(actual.clear(), [])


def test_compare_shows_differences_side_by_side() -> None:
    actual = table("ts k n \n 1s a 1 \n 2s b 2 \n 3s c 3 \n 9s z 9")
    expected = table("ts k n \n 2s b 5 \n 1s a 1 \n 3s c 4 \n 8s y 8 \n 7s x 7")
    schema = {"ts": st.TIME, "k": pl.String, "n": pl.Int64}
    with pytest.raises(AssertionError) as error:
        compare(pl.DataFrame(actual, schema=schema), pl.DataFrame(expected, schema=schema))
    assert str(error.value) == (
        "2 rows changed, 2 missing, 1 extra (4 given, 5 expected)\n"
        "changed:\n"
        "  expected  ts=1970-01-01 00:00:02+00:00  k=b  n=5\n"
        "  given     ts=1970-01-01 00:00:02+00:00  k=b  n=2\n"
        "  expected  ts=1970-01-01 00:00:03+00:00  k=c  n=4\n"
        "  given     ts=1970-01-01 00:00:03+00:00  k=c  n=3\n"
        "missing:\n"
        "  ts=1970-01-01 00:00:07+00:00  k=x  n=7\n"
        "  ts=1970-01-01 00:00:08+00:00  k=y  n=8\n"
        "extra:\n"
        "  ts=1970-01-01 00:00:09+00:00  k=z  n=9"
    )


def test_compare_shows_only_the_first_few() -> None:
    with pytest.raises(AssertionError) as error:
        compare(frame(x=list(range(1000))), frame(x=list(range(2000, 2500))))
    assert str(error.value).startswith("0 rows changed, 500 missing, 1000 extra (1000 given, 500 expected)")
    assert len(str(error.value).splitlines()) == 1 + 2 * (1 + 5)


# ── check_operator ────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = [{"ts": at(f"{i // 2}s"), "word": "abc"[i % 3], "n": i} for i in range(30)]


class Count(st.BucketOperator[Any]):
    """Counts words, correctly."""

    output: ClassVar = {"word": pl.String, "n": pl.Int64, "ts": st.TIME}

    def init(self) -> Any:
        return {}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        rows = []
        for word, ts in tuples.select("word", "ts").iter_rows():
            state[word] = state.get(word, 0) + 1
            rows.append({"word": word, "n": state[word], "ts": ts})
        return pl.DataFrame(rows, schema=self.output)


def test_check_operator_gives_the_rows_of_a_good_operator() -> None:
    assert check_operator(Count(), WORDS, keys="word")["n"].max() == 10
    assert check_operator(Count(), pl.DataFrame(WORDS))["n"].max() == 10
    assert check_operator(Count(), [], schema={"ts": st.TIME, "word": pl.String}).height == 0


def test_check_operator_finds_rows_that_depend_on_the_frame() -> None:
    class PerFrame(Count):
        """Counts within one call."""

        def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            return super().process({}, tuples, ready_ts)

    with pytest.raises(AssertionError, match=r"PerFrame .*other rows.* \(seed 0, cut \d+\): \d+ row"):
        check_operator(PerFrame(), WORDS, keys="word")


def test_check_operator_finds_state_that_is_not_written_down() -> None:
    class Forgetful(Count):
        def serialize(self, state: Any) -> pl.DataFrame:
            return pl.DataFrame({"json": ["{}"]})

    with pytest.raises(AssertionError, match="Forgetful gives other rows"):
        check_operator(Forgetful(), WORDS, keys="word")


def test_check_operator_finds_keys_that_are_mixed_up() -> None:
    class Mixed(Count):
        """Counts all words of its state together."""

        def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            state["n"] = state.get("n", 0) + tuples.height
            return tuples.select("word", n=pl.lit(state["n"], dtype=pl.Int64), ts="ts").tail(1)

    with pytest.raises(AssertionError, match="Mixed gives other rows"):
        check_operator(Mixed(), WORDS, keys="word")


def test_check_operator_finds_rows_that_depend_on_when_time_is_told() -> None:
    class Told(Count):
        def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            state["due"] = True

        def on_time(self, state: Any, ready_ts: int) -> Any:
            if state.pop("due", False) and ready_ts < st.END_OF_TIME:
                return pl.DataFrame({"word": [""], "n": [0], "ts": [ready_ts]}, schema=self.output)
            return None

    with pytest.raises(AssertionError, match="Told gives other rows"):
        check_operator(Told(), WORDS)


def test_check_operator_gives_a_tuple_once_with_all_its_keys_in_a_state() -> None:
    class PerTag(st.BucketOperator[Any]):
        output: ClassVar = {"tag": pl.String, "n": pl.Int64, "ts": st.TIME}

        def init(self) -> Any:
            return {}

        def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            rows = []
            for tags, ts in tuples.select("own_keys", "ts").iter_rows():
                for tag in tags:
                    state[tag] = state.get(tag, 0) + 1
                    rows.append({"tag": tag, "n": state[tag], "ts": ts})
            return pl.DataFrame(rows, schema=self.output)

    tweets = [{"ts": at(f"{i}s"), "tags": ["a", "b", "a", "c"][: i % 5]} for i in range(12)]
    assert check_operator(PerTag(), tweets, keys="tags").group_by("tag").len().sort("tag").rows() == [
        ("a", 9),
        ("b", 6),
        ("c", 2),
    ]


class Silence(st.KeyOperator):
    """Says after 3 s of silence how many tuples there were."""

    state: ClassVar = {"n": pl.Int64, "due": pl.Int64}
    output: ClassVar = {"word": pl.String, "n": pl.Int64, "ts": st.TIME}
    timer: Any = "due"

    def init(self, key: Any) -> Any:
        return {"n": 0, "due": None}

    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        state["n"] += tuples.height
        state["due"] = tuples["ts"].cast(pl.Int64)[-1] + 3_000_000
        return []

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        state["due"] = None
        return [{"word": key[0], "n": state["n"], "ts": ready_ts}]

    def keep(self, key: Any, state: Any) -> bool:
        return state["due"] is not None


def test_check_operator_with_timers() -> None:
    gaps = [
        {"ts": at(f"{t}s"), "word": w}
        for t, w in [(0, "a"), (1, "b"), (2, "a"), (5, "a"), (5, "a"), (9, "b"), (30, "a")]
    ]
    found = check_operator(Silence(), gaps, keys="word")
    compare(found, table("word n ts \n b 1 4s \n a 2 5s \n a 2 8s \n b 1 12s \n a 1 33s"))


def test_check_operator_lets_an_operator_with_keep_see_each_tuple() -> None:
    class UpTo(Silence):
        timer = None

        def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            state["n"] += tuples.height
            return [{"word": key[0], "n": state["n"], "ts": ts} for ts in tuples["ts"]]

        def keep(self, key: Any, state: Any) -> bool:
            return bool(state["n"] < 3)

    assert check_operator(UpTo(), WORDS, keys="word")["n"].max() == 3


def test_check_operator_finds_a_key_operator_that_counts_calls() -> None:
    class Calls(Silence):
        timer = None

        def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            state["n"] += 1
            return [{"word": key[0], "n": state["n"], "ts": ts} for ts in tuples["ts"]]

        keep = st.KeyOperator.keep

    with pytest.raises(AssertionError, match="Calls gives other rows"):
        check_operator(Calls(), WORDS, keys="word")


def test_check_operator_wants_tuples_in_order() -> None:
    with pytest.raises(ValueError, match="in the order of ts"):
        check_operator(Count(), WORDS[::-1], keys="word")
