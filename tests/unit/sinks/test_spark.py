"""Rows to Spark's batch writers, through a function."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import ParquetFiles, Publication
from springtide.sinks.spark import spark_schema
from tests.machine import LONG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
VALUES: list[tuple[Any, Any, Any]] = [
    (pl.Int8, -5, -5),
    (pl.Int16, 300, 300),
    (pl.Int32, 70_000, 70_000),
    (pl.Int64, 2**40, 2**40),
    (pl.UInt8, 255, 255),
    (pl.UInt16, 65_535, 65_535),
    (pl.UInt32, 2**32 - 1, 2**32 - 1),
    (pl.UInt64, 2**64 - 1, Decimal(2**64 - 1)),
    (pl.Float32, 0.5, 0.5),
    (pl.Float64, 0.1, 0.1),
    (pl.String, "ä", "ä"),
    (pl.Categorical(), "a", "a"),
    (pl.Enum(["a", "b"]), "b", "b"),
    (pl.Boolean, True, True),
    (pl.Binary, b"\x00\xff", bytearray(b"\x00\xff")),
    (pl.Date, date(2024, 2, 29), date(2024, 2, 29)),
    (pl.Datetime("us"), datetime(2024, 2, 29, 12), datetime(2024, 2, 29, 12)),
    (pl.Datetime("ms"), datetime(2024, 2, 29, 12), datetime(2024, 2, 29, 12)),
    (pl.Decimal(10, 2), Decimal("1.25"), Decimal("1.25")),
    (pl.List(pl.Int64), [1, None], [1, None]),
    (pl.Array(pl.Int64, 2), [1, 2], [1, 2]),
    (pl.Struct({"a": pl.Int64, "b": pl.List(pl.String)}), {"a": 1, "b": ["x"]}, (1, ["x"])),
]


def test_what_is_no_function() -> None:
    with pytest.raises(st.QueryError, match=r"5 is not a function; give one that takes \(df, epoch\)"):
        st.spark_sink(5)  # type: ignore[arg-type]


def test_it_says_where_rows_go() -> None:
    def save(df: Any, epoch: int) -> None:
        pass

    assert st.spark_sink(save).describe() == "spark function save"
    assert st.spark_sink(save).outbox == ParquetFiles()


@pytest.mark.parametrize(
    ("dtype", "named"),
    [
        (pl.Time, "time of day"),
        (pl.Datetime("ns"), "datetime[ns]"),
        (pl.Duration("us"), "duration[us]"),
        (pl.Int128, "int128"),
        (pl.Object, "object"),
        (pl.List(pl.Time), "time of day"),
        (pl.Struct({"a": pl.Array(pl.Duration("ms"), 2)}), "duration[ms]"),
        (pl.Struct({}), "struct[]"),
        (pl.Null, "null"),
    ],
)
def test_what_spark_has_no_type_for_is_refused(dtype: Any, named: str) -> None:
    sink = st.spark_sink(print)
    assert sink.check(pl.Schema({"x": pl.Int64(), "v": dtype})) == f"'v' has the type {named}, which Spark cannot read"


def test_what_spark_knows_is_taken() -> None:
    schema = pl.Schema({f"c{i}": dtype for i, (dtype, _, _) in enumerate(VALUES)} | {"ts": st.TIME})
    assert st.spark_sink(print).check(schema) is None


def test_an_epoch_without_rows_is_left_out() -> None:
    st.spark_sink(lambda df, epoch: pytest.fail("called")).publish(Publication("out", 1, pl.Schema(), (), ()))


@pytest.mark.spark
def test_every_type_arrives(spark: SparkSession, tmp_path: Path) -> None:
    schema = pl.Schema({f"c{i}": dtype for i, (dtype, _, _) in enumerate(VALUES)})
    rows = pl.DataFrame({f"c{i}": [value, None] for i, (_, value, _) in enumerate(VALUES)}, schema=schema)
    rows.write_parquet(tmp_path / "a.parquet", compression="zstd", compression_level=1, statistics=True)
    got: list[Any] = []
    sink = st.spark_sink(lambda df, epoch: got.extend(df.collect()))
    sink.publish(Publication("out", 1, schema, (tmp_path / "a.parquet",), (2,)))
    first, second = got
    for i, (dtype, _, expected) in enumerate(VALUES):
        found = first[f"c{i}"]
        assert (tuple(found) if isinstance(expected, tuple) else found) == expected, dtype
        assert second[f"c{i}"] is None, dtype


@pytest.mark.spark
def test_the_function_gets_the_rows_and_the_epoch(spark: SparkSession, tmp_path: Path) -> None:
    files = []
    for i in range(2):
        frame = pl.DataFrame({"ts": [NOON], "x": [i]}, schema={"ts": st.TIME, "x": pl.Int64})
        frame.write_parquet(tmp_path / f"{i}.parquet")
        files.append(tmp_path / f"{i}.parquet")
    out = tmp_path / "out"

    def save(df: DataFrame, epoch: int) -> None:
        assert df.schema == spark_schema(pl.Schema({"ts": st.TIME, "x": pl.Int64()}))
        df.write.mode("overwrite").parquet(f"{out}/epoch={epoch}")

    given = Publication("out", 3, pl.Schema({"ts": st.TIME, "x": pl.Int64()}), tuple(files), (1, 1))
    st.spark_sink(save).publish(given)
    st.spark_sink(save).publish(given)
    written = pl.read_parquet(f"{out}/epoch=3/*.parquet")
    assert sorted(written["x"].to_list()) == [0, 1]
    assert written["ts"].dt.replace_time_zone("UTC").unique().to_list() == [NOON]


@pytest.mark.spark
def test_in_a_run_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    got: dict[int, list[int]] = {}

    def save(df: DataFrame, epoch: int) -> None:
        got[epoch] = sorted(row["x"] for row in df.collect())

    source = st.source("numbers", st.memory(pl.DataFrame({"x": range(10)})))
    query = st.Query("numbers", source.filter(pl.col("x") != 5).to(st.spark_sink(save)))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, rows_per_epoch=4)
    assert run.wait(LONG)
    assert got == {0: [0, 1, 2, 3], 1: [4, 6, 7], 2: [8, 9]}


def test_without_a_session_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    def active() -> SparkSession:
        raise PySparkRuntimeError("none")

    monkeypatch.setattr(SparkSession, "active", active)
    sink = st.spark_sink(print)
    with pytest.raises(st.SpringtideError, match=r"no Spark session for the sink st\.spark_sink"):
        sink.publish(Publication("out", 1, pl.Schema({"x": pl.Int64()}), (tmp_path / "a.parquet",), (1,)))
