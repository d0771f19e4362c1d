"""User operators: declared schemas, keys, and the state's own hooks (ST-2, ST-4, SM-1)."""

from __future__ import annotations

from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.query import steps
from springtide.query.operators import OWN_KEYS

COLUMNS = {"user": pl.String, "page": pl.String, "tags": pl.List(pl.String), "ts": st.TIME}
views = st.source("views", st.memory(schema=COLUMNS), ts="ts")


class Count(st.BucketOperator[dict[str, int]]):
    output: ClassVar = {"page": pl.String, "n": pl.Int64, "ts": st.TIME}

    def init(self) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame | None:
        return None


class Frames(st.BucketOperator[pl.DataFrame]):
    output: ClassVar = {"ts": st.TIME}

    def init(self) -> pl.DataFrame:
        return pl.DataFrame({"page": ["a"], "n": [1]})

    def process(self, state: pl.DataFrame, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame | None:
        return None


class Last(st.KeyOperator):
    state: ClassVar = {"page": pl.String, "due": pl.Int64}
    output: ClassVar = {"user": pl.String, "ts": st.TIME}
    timer = "due"

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {"page": None, "due": None}

    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        return []


def operate(stream: st.Stream) -> steps.Operate:
    assert isinstance(stream.step, steps.Operate)
    return stream.step


def test_the_output_is_what_the_class_declares() -> None:
    stream = views.operator(Count(), keys="page")
    assert stream.schema == pl.Schema({"page": pl.String(), "n": pl.Int64(), "ts": st.TIME})
    assert stream.timed
    assert operate(stream).stateful


def test_keys() -> None:
    assert operate(views.operator(Count())).keys == ()
    assert operate(views.operator(Count(), keys="page")).keys == ("page",)
    assert operate(views.operator(Count(), keys=["user", "page"])).keys == ("user", "page")
    assert not operate(views.operator(Count(), keys=["user", "page"])).many


def test_st2_a_list_column_is_many_keys() -> None:
    step = operate(views.operator(Count(), keys="tags"))
    assert step.many
    assert step.keys == ("tags",)
    assert OWN_KEYS == "own_keys"


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (views.operator(Count()), "Count"),
        (views.operator(Count(), keys=["user", "page"]), "Count by user, page"),
        (views.operator(Count(), keys="tags"), "Count by each of tags"),
        (views.operator(Last(), keys="user"), "Last by user"),
    ],
)
def test_an_operator_in_words(stream: st.Stream, text: str) -> None:
    assert stream.step.describe() == text


def test_rejected_rows_have_the_columns_of_the_input_and_a_reason() -> None:
    counted = views.operator(Count(), keys="page", on_error="reject")
    assert counted.rejected.schema == pl.Schema({**views.schema, "reason": pl.String()})
    assert not counted.rejected.timed
    assert counted.step.describe() == "Count by page, errors reject the row"


def test_an_operator_is_an_object_with_its_own_settings() -> None:
    class Every(Count):
        def __init__(self, n: int) -> None:
            self.n = n

    operator = Every(3)
    assert operate(views.operator(operator, keys="page")).operator is operator


def test_a_schema_may_be_one_of_polars() -> None:
    class Schema(Count):
        output: ClassVar = pl.Schema({"n": pl.Int64(), "ts": st.TIME})

    assert views.operator(Schema()).schema == Schema.output


# ── the hooks of SM-1: init, serialize, deserialize, partition, merge, free ──


def test_a_dict_goes_as_json_and_comes_back() -> None:
    state = {"b": 2, "a": 1}
    written = Count().serialize(state)
    assert written.to_dict(as_series=False) == {"json": ['{"a": 1, "b": 2}']}
    assert Count().deserialize(written) == state


def test_a_frame_goes_as_it_is() -> None:
    state = Frames().init()
    assert Frames().serialize(state) is state
    assert Frames().deserialize(state).equals(state)


def test_a_dict_is_cut_by_its_keys_and_joined_again() -> None:
    state = {"a": 1, "b": 2, "c": 3}
    parts = Count().partition(state, 2, lambda key: 0 if key == "b" else 1)
    assert parts == [{"b": 2}, {"a": 1, "c": 3}]
    assert Count().merge(parts) == state
    assert Count().merge([]) == {}


def test_other_states_must_say_how_they_are_cut() -> None:
    with pytest.raises(TypeError, match=r"Frames .*DataFrame.* partition\(state, parts, part_of\)"):
        Frames().partition(Frames().init(), 2, lambda _: 0)
    with pytest.raises(TypeError, match=r"Frames: define merge\(states\)"):
        Frames().merge([Frames().init()])


def test_what_an_operator_need_not_define() -> None:
    assert Count().on_time({}, 0) is None
    assert Count().free({}) is None  # type: ignore[func-returns-value]
    assert Last().on_time(("a",), {}, 0) == ()
    assert Last().keep(("a",), {})
    assert st.KeyOperator.timer is None


@pytest.mark.parametrize("kind", [st.BucketOperator, st.KeyOperator])
def test_init_and_process_must_be_defined(kind: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()
