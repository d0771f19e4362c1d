"""`Query.run_reference`: inputs, results and mistakes."""

from __future__ import annotations

import pickle

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import UserCodeError
from springtide.testing import at, streams

ROWS = [{"ts": at("2s"), "x": 2}, {"ts": at("3s"), "x": 1}]
S = st.source("numbers", st.memory(ROWS), ts="ts")


def test_sources_that_are_not_named_are_read() -> None:
    other = st.source("other", st.memory(ROWS), ts="ts")
    query = st.Query("q", S.union(other).to(st.memory_sink()))
    assert query.run_reference().rows().height == 4
    assert query.run_reference({"other": []}).rows().height == 2


@pytest.mark.parametrize("rows", [ROWS, pl.DataFrame(ROWS), streams(a=ROWS[:1], b=pl.DataFrame(ROWS[1:]))])
def test_inputs_may_be_lists_frames_or_physical_streams(rows: object) -> None:
    result = st.Query("q", S.to(st.memory_sink())).run_reference({"numbers": rows})  # type: ignore[dict-item]
    assert result.rows()["x"].to_list() == [2, 1]


def test_an_unknown_source_is_an_error_with_the_nearest_name() -> None:
    query = st.Query("q", S.to(st.memory_sink()))
    with pytest.raises(st.QueryError, match=r"there is no source 'number'; did you mean 'numbers'\?"):
        query.run_reference({"number": []})


def test_sinks_are_named() -> None:
    query = st.Query(
        "q", S.to(st.memory_sink(), name="all"), S.filter(pl.col("x") > 1).to(st.memory_sink(), name="some")
    )
    result = query.run_reference()
    assert (result.rows("all").height, result.rows("some").height) == (2, 1)
    with pytest.raises(st.QueryError, match="the query has several sinks; name one of: all, some"):
        result.rows()
    with pytest.raises(st.QueryError, match="the query has no sink 'som'; did you mean 'some'"):
        result.rows("som")


def test_rows_are_ordered_by_ts_then_content_and_have_the_sinks_schema() -> None:
    rows = [{"ts": at("3s"), "x": 1}, {"ts": at("3s"), "x": None}, {"ts": at("3s"), "x": -1}]
    result = st.Query("q", S.to(st.memory_sink())).run_reference({"numbers": rows})
    assert result.rows()["x"].to_list() == [None, -1, 1]
    empty = st.Query("q", S.to(st.memory_sink())).run_reference({"numbers": []})
    assert empty.rows().schema == S.schema
    assert empty.late["numbers"].schema == S.schema
    assert empty.rejected["numbers"].schema == S.rejected.schema


def test_a_source_that_only_shows_its_rejected_rows() -> None:
    query = st.Query("q", S.rejected.to(st.memory_sink()))
    assert query.run_reference({"numbers": [{"ts": None}]}).rows()["position"].to_list() == [0]


def test_the_sinks_themselves_get_nothing() -> None:
    sink = st.memory_sink()
    st.Query("q", S.to(sink)).run_reference()
    assert sink.rows().height == 0


def test_observe_is_told_rows_and_seconds_of_each_step() -> None:
    """SC-8: what a sample run costs."""
    seen = []
    kept = S.filter(pl.col("x") > 1, name="kept")
    st.Query("q", kept.to(st.memory_sink(), name="out")).run_reference(observe=lambda *step: seen.append(step))
    assert [(name, rows) for name, rows, _ in seen] == [("numbers", 2), ("kept", 2), ("out", 1)]
    assert all(seconds >= 0 for _, _, seconds in seen)


def test_user_code_errors_survive_a_trip_between_processes() -> None:
    error = UserCodeError("fold (operator)", "wrong", "do it right", {"x": 1})
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error) == "step fold (operator): wrong; do it right; the first such row: {'x': 1}"
