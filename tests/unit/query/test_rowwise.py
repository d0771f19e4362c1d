"""An expression sees one row: what Polars knows about that, and what is tried out (SC-3, SC-4)."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.query.rowwise import calls_python, check_row_wise, made_up, null_row
from tests.wording import says

SCHEMA = pl.Schema({"x": pl.Int64(), "s": pl.String(), "l": pl.List(pl.Int64())})
x, s, items = (pl.col(name) for name in SCHEMA)

ROW_WISE = {
    "arithmetic": (x * 2 + 1) % 7,
    "comparison": (x > 3) & s.is_not_null(),
    "when": pl.when(x > 3).then(s).otherwise(pl.lit("few")),
    "text": s.str.to_uppercase() + "!",
    "list": items.list.sort().list.head(2),
    "list.eval": items.list.eval(pl.element() - pl.element().mean()),
    "struct": pl.struct("x", "s"),
    "fill": x.fill_null(0),
    "membership": x.is_in([1, 2, 3]),
    "membership in a list of the row": x.is_in("l"),
    "horizontal": pl.max_horizontal(x, items.list.max()),
    "fold": pl.fold(pl.lit(0, dtype=pl.Int64), lambda a, b: a + b, [x, x]),
    "constant": pl.lit(3),
    "python": x.map_elements(lambda v: v * 2 if v > 3 else -v, return_dtype=pl.Int64),
}
OTHER_ROWS: dict[str, pl.Expr] = {
    "aggregate": x.sum(),
    "aggregate inside": x - x.mean(),
    "aggregate that the values hide": x > x.max() * 10**6,
    "aggregate deep inside": pl.when(s == "a").then(x).otherwise(pl.max_horizontal(x, x.min() + 1)),
    "shift": x.shift(),
    "shift beyond any sample": x.shift(10**6),
    "cumulative": x.cum_sum(),
    "window": x.sum().over("s"),
    "rolling": x.rolling_mean(2),
    "order": x.rank(),
    "sort": x.sort(),
    "reverse": x.reverse(),
    "sample": x.shuffle(seed=1),
    "duplicates": x.is_duplicated(),
    "fill from before": x.forward_fill(),
    "interpolate": x.interpolate(),
    "other length": x.unique(),
    "shorter": x.filter(x > 3),
    "longer": items.explode(),
    "nulls left out": x.drop_nulls(),
    "row count": pl.len(),
    "row number": pl.int_range(pl.len()),
    "membership in all rows": x.is_in(x.implode()),
    "guessed format": s.str.to_datetime(),
    "literal series": pl.lit(pl.Series([1, 2, 3])),
    "literal series of one": pl.lit(pl.Series([1])),
    "literal series as long as the sample": x + pl.lit(pl.Series([1, 2, 3, 4, 5])),
    "python over all rows": x.map_batches(lambda v: v - v.max(), return_dtype=pl.Int64),
    "python with memory": x.map_batches(lambda v: v.cum_sum(), return_dtype=pl.Int64),
    "fold over rows": pl.fold(pl.lit(0, dtype=pl.Int64), lambda a, b: a + b.sum(), [x, x]),
}


@pytest.mark.parametrize("name", ROW_WISE)
def test_what_sees_one_row_is_accepted(name: str) -> None:
    check_row_wise("step", SCHEMA, ROW_WISE[name])
    check_row_wise("step", SCHEMA, ROW_WISE[name].alias("other"))


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_what_sees_other_rows_is_refused(name: str) -> None:
    for expr in (OTHER_ROWS[name], OTHER_ROWS[name].alias("other")):
        with pytest.raises(st.QueryError, match=r"more than one row|row by row"):
            check_row_wise("step", SCHEMA, expr)


values = some.fixed_dictionaries(
    {
        "x": some.none() | some.integers(-10, 10),
        "s": some.none() | some.sampled_from(["a", "b", ""]),
        "l": some.none() | some.lists(some.integers(-5, 5), max_size=3),
    }
)


@given(some.lists(values, min_size=1, max_size=8), some.data())
def test_what_is_accepted_does_not_depend_on_the_cut(rows: list[dict[str, Any]], data: some.DataObject) -> None:
    """SC-4: the input may be cut anywhere."""
    frame = pl.DataFrame(rows, schema=SCHEMA)
    cut = data.draw(some.integers(0, len(rows)))
    exprs = [expr.alias(name) for name, expr in ROW_WISE.items()]
    parts = [frame[:cut].with_columns(exprs), frame[cut:].with_columns(exprs)]
    assert pl.concat(parts).equals(frame.with_columns(exprs))


def test_the_guilty_part_is_named() -> None:
    with pytest.raises(st.QueryError) as caught:
        check_row_wise("step", SCHEMA, ((x - x.mean()) / 2).alias("y"))
    assert says(caught.value.problem, "x.mean() ", "more than one row", "(x - x.mean()) / 2")


def test_python_functions_are_seen() -> None:
    assert calls_python(x.map_elements(lambda v: v, return_dtype=pl.Int64) + 1)
    assert not calls_python(x + 1)


TYPES = [
    *(
        pl.Int8,
        pl.UInt64,
        pl.Float32,
        pl.Boolean,
        pl.String,
        pl.Binary,
        pl.Date,
        pl.Time,
        pl.Null,
    ),
    *(
        pl.Datetime("ms"),
        pl.Datetime("ns", "Europe/Berlin"),
        st.TIME,
        pl.Duration("ns"),
        pl.Decimal(2, 1),
        pl.Categorical(),
    ),
    *(pl.Enum(["a", "b"]), pl.Enum([]), pl.Array(pl.Int8, 2), pl.Array(pl.String, 0), pl.Struct({}), pl.List(pl.Null)),
    *(pl.List(pl.List(pl.String)), pl.Struct({"a": pl.List(pl.Float32), "b": pl.Struct({"c": pl.Date})})),
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rows_are_made_up_for_every_type(dtype: Any) -> None:
    schema = pl.Schema({"v": dtype, "x": pl.Int64()})
    assert null_row(schema).schema == schema
    rows = made_up(schema)
    assert rows.schema == schema
    assert rows.height == 5
    assert rows["v"][4] is None
    stream = (
        st.source("s", st.memory(schema=schema)).map(y=pl.col("v").is_null(), z=pl.col("x") + 1).select("v", "y", "z")
    )
    assert list(stream.schema) == ["v", "y", "z"]
