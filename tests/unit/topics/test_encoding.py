"""What goes into records, without a broker: what is written as a format is read again as that format."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.topics.encoding import Coding, encoded
from springtide.topics.values import Parsed, parser

TEXTS = some.text(alphabet='ab ,;"\r\n\t\ufeffü\\', max_size=6)


def back(rows: pl.DataFrame, format: str, separator: str = ",") -> Parsed:
    """What is read of rows that were written."""
    values, keys = encoded(rows, Coding(format, separator=separator), None, b"")
    assert keys == [None] * rows.height
    return parser(format, rows.schema, separator)(values)


@given(some.lists(some.tuples(some.none() | TEXTS, some.none() | some.integers(-9, 9)), max_size=6))
@pytest.mark.parametrize(("format", "separator"), [("json", ","), ("csv", ","), ("csv", ";"), ("csv", "|")])
def test_any_text_comes_back(format: str, separator: str, rows: list[tuple[str | None, int | None]]) -> None:
    frame = pl.DataFrame(rows, schema={"text": pl.String, "n": pl.Int8}, orient="row")
    found = back(frame, format, separator)
    assert found.faults == {}
    assert found.rows.equals(frame)


@given(some.lists(some.none() | TEXTS, max_size=6))
@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_single_column_of_texts_comes_back(format: str, texts: list[str | None]) -> None:
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.String})
    found = back(frame, format)
    assert found.faults == {}
    assert found.rows.equals(frame)


@pytest.mark.parametrize("format", ["json", "csv"])
def test_values_of_every_type_come_back(format: str) -> None:
    frame = pl.DataFrame(
        {
            "flag": [True, False, None],
            "small": pl.Series([-128, 127, None], dtype=pl.Int8),
            "large": pl.Series([0, 2**64 - 1, None], dtype=pl.UInt64),
            "real": [0.1, -1e300, None],
            "single": pl.Series([0.1, 3.4e38, None], dtype=pl.Float32),
            "price": pl.Series([Decimal("1.50"), Decimal(-3), None], dtype=pl.Decimal(9, 2)),
            "day": [date(2024, 5, 1), date(1970, 1, 1), None],
            "clock": pl.Series([time(1, 2, 3), time(1, 2, 3, 4), None]),
            "ts": [datetime(2024, 5, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 7, tzinfo=UTC), None],
            "naive": [datetime(2024, 5, 1, 1), datetime(2024, 5, 1, 1, 0, 0, 1), None],
            "kind": pl.Series(["a", "b,c", None], dtype=pl.Categorical),
        }
    )
    found = back(frame, format)
    assert found.faults == {}
    assert found.rows.equals(frame)


def test_infinite_numbers_are_text_in_csv_and_null_in_json() -> None:
    frame = pl.DataFrame({"x": [float("inf"), float("-inf"), float("nan"), 1.0]})
    assert back(frame, "csv").rows.equals(frame)
    assert back(frame, "json").rows["x"].to_list() == [None, None, None, 1.0]


def test_what_is_inside_of_others_is_written_as_it_is_outside() -> None:
    """Headers of records, for example, are a list of names and bytes."""
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    frame = pl.DataFrame(
        {
            "headers": [[{"name": "h", "value": b"1"}, {"name": "e", "value": None}], None, []],
            "times": [[moment, None], [], None],
            "part": [{"took": timedelta(seconds=1), "price": Decimal("1.5")}, None, {"took": None, "price": None}],
            "days": pl.Series([[date(2024, 5, 1)] * 2] * 3, dtype=pl.Array(pl.Date, 2)),
        }
    )
    values, _ = encoded(frame, Coding("json"), None, b"")
    days = ["2024-05-01"] * 2
    assert [json.loads(value or b"") for value in values] == [
        {
            "headers": [{"name": "h", "value": "MQ=="}, {"name": "e", "value": None}],
            "times": ["2024-05-01T00:00:00.000000Z", None],
            "part": {"took": 1_000_000, "price": "1.5"},
            "days": days,
        },
        {"headers": None, "times": [], "part": None, "days": days},
        {"headers": [], "times": None, "part": {"took": None, "price": None}, "days": days},
    ]


def test_values_of_other_types_come_back_as_text_integers_and_lists() -> None:
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "raw": [b"k"],
            "took": [timedelta(seconds=1)],
            "many": pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)),
            "part": [{"ts": moment, "price": Decimal("1.5"), "raw": b"k", "took": timedelta(seconds=1)}],
        }
    )
    part = {"ts": pl.String, "price": pl.String, "raw": pl.String, "took": pl.Int64}
    schema = pl.Schema({"raw": pl.String, "took": pl.Int64, "many": pl.List(pl.Int64), "part": pl.Struct(part)})
    values, _ = encoded(rows, Coding("json"), None, b"")
    found = parser("json", schema, ",")(values)
    assert found.faults == {}
    assert found.rows.rows() == [
        (
            "aw==",
            1_000_000,
            [1, 2],
            {"ts": "2024-05-01T00:00:00.000000Z", "price": "1.5", "raw": "aw==", "took": 1_000_000},
        )
    ]
    for name, dtype in rows.schema.items():
        if name != "many":
            with pytest.raises(st.QueryError, match="cannot be read from text; declare it as"):
                st.kafka("localhost:9092", "t", schema={name: dtype})


@pytest.mark.parametrize("value", ["json", "csv", "avro"])
@pytest.mark.parametrize(
    "dtype", [pl.Duration("ns"), pl.List(pl.Duration("ns")), pl.Struct({"a": pl.Array(pl.Duration("ns"), 1)})], ids=str
)
def test_nanoseconds_that_would_be_lost_are_refused_when_the_query_is_built(value: Any, dtype: pl.DataType) -> None:
    stream = st.source("rows", st.memory(pl.DataFrame(schema={"n": dtype})))
    with pytest.raises(st.QueryError, match=r"'n' is .* whose nanoseconds would be lost: cast it to microseconds"):
        stream.to(st.kafka_sink("localhost:9092", "t", value=value))


def test_avro_has_no_nanoseconds_at_all() -> None:
    stream = st.source("rows", st.memory(pl.DataFrame(schema={"n": pl.Datetime("ns")})))
    with pytest.raises(st.QueryError, match="whose nanoseconds would be lost"):
        stream.to(st.kafka_sink("localhost:9092", "t", value="avro"))
    stream.to(st.kafka_sink("localhost:9092", "t"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"value": "csv"}, r"'many' is list\[i64\], which cannot be a field of a CSV line"),
        ({"value": "csv", "separator": ";;"}, "separator=';;' is not one character"),
    ],
)
def test_what_csv_cannot_hold_is_refused_when_the_query_is_built(options: dict[str, Any], words: str) -> None:
    stream = st.source("rows", st.memory(schema={"n": pl.Int64, "many": pl.List(pl.Int64)}))
    with pytest.raises(st.QueryError, match=words):
        stream.to(st.kafka_sink("localhost:9092", "t", **options))


@pytest.mark.parametrize(
    "dtype",
    [
        pl.Object(),
        pl.Struct({}),
        pl.List(pl.Struct({})),
        pl.Map(pl.String(), pl.Datetime("us")),
        pl.Map(pl.Int64(), pl.Int64()),
    ],
    ids=str,
)
def test_what_has_no_form_cannot_be_written(dtype: pl.DataType) -> None:
    why = Coding("json").unfit(pl.Schema({"n": dtype}))
    assert why is not None
    assert why.endswith("which cannot be written as json")


def test_a_map_of_texts_and_numbers_is_an_object() -> None:
    rows = pl.DataFrame({"m": pl.Series([[{"key": "a", "value": 1}], [], None], dtype=pl.Map(pl.String(), pl.Int64()))})
    assert Coding("json").unfit(rows.schema) is None
    assert encoded(rows, Coding("json"), None, b"")[0] == [b'{"m":{"a":1}}', b'{"m":{}}', b'{"m":null}']


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"a b": pl.Int64()}, "'a b' cannot be the name of a field"),
        ({"s": pl.List(pl.Struct({"ü": pl.Int64()}))}, "'ü' cannot be the name of a field"),
        (
            {
                "a": pl.Struct({"b_c": pl.Struct({"x": pl.Int64()})}),
                "a_b": pl.Struct({"c": pl.Struct({"y": pl.Int64()})}),
            },
            "two records would both be called 'row_t_value_a_b_c': rename a column",
        ),
    ],
    ids=["a column", "inside", "two records"],
)
def test_names_that_avro_does_not_have_are_refused_when_the_query_is_built(
    schema: dict[str, pl.DataType], words: str
) -> None:
    stream = st.source("rows", st.memory(schema=schema))
    with pytest.raises(st.QueryError, match=words):
        stream.to(st.kafka_sink("localhost:9092", "t", value="avro"))


def test_a_line_break_counts_where_it_is_outside_of_quotes() -> None:
    schema = pl.Schema({"text": pl.String(), "n": pl.Int64()})
    found = parser("csv", schema, ",")([b'"a\nb",1', b"a\nb,1", b'"a"\n,2', b'x"\n"y,3', b"c,4\r\n"])
    assert found.rows.rows() == [("a\nb", 1), ("c", 4)]
    assert found.faults == {
        1: "the value has more than one line",
        2: "the value has more than one line",
        3: "the line has a quote inside a field, or one that is not closed",
    }
