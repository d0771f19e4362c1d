"""QueryError says which step, what is wrong and what would be right, also after a trip between processes (SC-3)."""

from __future__ import annotations

import pickle
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import brief, nearest, shown


def test_the_three_parts_are_kept_and_said_in_one_line() -> None:
    error = st.QueryError("heavy (aggregate)", "there is no column 'sorce'", "did you mean 'source'?")
    assert (error.step, error.problem, error.hint) == (
        "heavy (aggregate)",
        "there is no column 'sorce'",
        "did you mean 'source'?",
    )
    assert str(error) == "step heavy (aggregate): there is no column 'sorce'; did you mean 'source'?"
    assert isinstance(error, st.SpringtideError)


def test_an_error_survives_pickling() -> None:
    error = st.QueryError("map after calls", "there is no column 'x'", "there are: y")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is st.QueryError
    assert (again.step, again.problem, again.hint, str(again)) == (error.step, error.problem, error.hint, str(error))


@pytest.mark.parametrize(
    ("name", "names", "said"),
    [
        ("sorce", ["ts", "source"], "did you mean 'source'?"),
        ("Source", ["ts", "source"], "did you mean 'source'?"),
        ("x", ["ts", "source"], "there are: source, ts"),
        ("", ["b", "a"], "there are: a, b"),
        ("x", [], "there are none"),
        ("x", [f"c{i:02}" for i in range(30)], f"there are: {', '.join(f'c{i:02}' for i in range(20))} and 10 more"),
    ],
)
def test_nearest(name: str, names: list[str], said: str) -> None:
    assert nearest(name, names) == said


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x > 1", "'x > 1'"),
        (5, "5"),
        (None, "None"),
        (["a"], "['a']"),
        (print, "the function print"),
        (dict, "the class dict"),
        (pl.Int64, "the class Int64"),
        (pl.Int64(), "Int64"),
        (pl.col("x").sum(), "the expression x.sum()"),
        (st.sum("x"), "sum(x)"),
        (st.tumbling("1m"), "tumbling 1m"),
        (pl.DataFrame({"x": [1]}), "a DataFrame"),
        (object(), "an object"),
        ("x" * 100, "a str"),
    ],
)
def test_any_value_fits_into_a_message(value: Any, text: str) -> None:
    assert shown(value) == text


def test_a_long_expression_is_cut() -> None:
    text = brief(pl.sum_horizontal(*(pl.col(f"column_{i}") for i in range(20))))
    assert len(text) == 60
    assert text.startswith("column_0.sum_horizontal(column_1, ")
    assert text.endswith("...")
