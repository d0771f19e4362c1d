"""Expressions over several columns are spelled out, one expression per column (SC-1, SC-3).

Frames of the engine have columns that the user does not know; `pl.all()` must not take them.
"""

from __future__ import annotations

import polars as pl
import polars.selectors as cs
import pytest

import springtide as st
from springtide.query.spelling import spell_out

FRAME = pl.DataFrame(
    {
        "x": [1, None, 3],
        "y": [10, 20, None],
        "s": ["a", "b", None],
        "r": [{"a": 1, "b": "p"}, {"a": 2, "b": "q"}, {"a": None, "b": "r"}],
    }
)
ENGINES = FRAME.with_columns(pl.lit(7).alias("__origin"), pl.lit("0").alias("__stream"))
x, y = pl.col("x"), pl.col("y")

SEVERAL = {
    "all": pl.all(),
    "star": pl.col("*"),
    "names": pl.col("x", "y"),
    "types": pl.col(pl.Int64),
    "regex": pl.col("^[xy]$"),
    "exclude": pl.exclude("x"),
    "selector": cs.numeric(),
    "selectors combined": cs.all() - cs.string(),
    "first": pl.first(),
    "nth": pl.nth(0, 2),
    "arithmetic": cs.numeric() * 2 + x,
    "side by side": pl.col("x", "y") / pl.col("y", "x"),
    "cast": cs.numeric().cast(pl.Float64).round(1),
    "when": pl.when(pl.col("x", "y") > 2).then(pl.col("x", "y")).otherwise(0),
    "fill with another": cs.numeric().fill_null(pl.max_horizontal(cs.numeric())),
    "suffix": pl.all().name.suffix("_2"),
    "name.map": cs.numeric().name.map(str.upper),
    "membership": cs.numeric().is_in([1, 10]),
    "replace": cs.numeric().replace({1: 2}),
    "unnest": pl.col("r").struct.unnest(),
    "fields": pl.col("r").struct.field("a", "b"),
    "fields by regex": pl.col("r").struct.field("^b.*$"),
    "none": cs.float(),
    "strings that look like words of the JSON": cs.numeric().cast(pl.String) + "Horizontal Selector Concat",
}
ONE = {
    "sum_horizontal": pl.sum_horizontal(cs.numeric()),
    "sum_horizontal and a column": pl.sum_horizontal(cs.numeric(), x),
    "all_horizontal": pl.all_horizontal(pl.all().is_not_null()),
    "struct": pl.struct(pl.all()),
    "field of a struct": pl.struct(cs.numeric()).struct.field("y"),
    "coalesce": pl.coalesce(cs.numeric(), 0),
    "concat_str": pl.concat_str(cs.string(), pl.lit("!")),
    "concat_list": pl.concat_list(cs.numeric() * 2),
    "format": pl.format("{}/{}", cs.by_name("x"), y),
}


@pytest.mark.parametrize("name", SEVERAL | ONE)
def test_it_gives_the_same_columns_and_reads_no_others(name: str) -> None:
    expr = (SEVERAL | ONE)[name]
    spelled = spell_out("step", FRAME.schema, [expr])
    assert not any(e.meta.has_multiple_outputs() for e in spelled)
    expected = FRAME.select(expr)
    assert FRAME.select(spelled).equals(expected)
    assert ENGINES.select(spelled).equals(expected)
    assert {root for e in spelled for root in e.meta.root_names()} <= set(FRAME.columns)
    assert name not in ONE or len(spelled) == 1


def test_what_has_one_output_stays_as_it_is() -> None:
    expr = (x + 1).alias("z")
    (spelled,) = spell_out("step", FRAME.schema, [expr])
    assert spelled is expr


def test_the_order_is_kept() -> None:
    spelled = spell_out("step", FRAME.schema, [pl.lit(1).alias("one"), cs.numeric() + 1, pl.col("s")])
    assert [e.meta.output_name() for e in spelled] == ["one", "x", "y", "s"]


def test_what_cannot_be_resolved_is_left_to_who_resolves_it() -> None:
    expr = pl.col("x", "nope")
    assert spell_out("step", FRAME.schema, [expr]) == (expr,)


def test_several_columns_cannot_have_one_name() -> None:
    with pytest.raises(st.QueryError, match="same name; "):
        spell_out("step", FRAME.schema, [pl.all().alias("z")])


def test_a_python_function_is_spelled_out_too() -> None:
    spelled = spell_out("step", FRAME.schema, [cs.numeric().map_elements(lambda v: v, return_dtype=pl.Int64)])
    assert [e.meta.output_name() for e in spelled] == ["x", "y"]
