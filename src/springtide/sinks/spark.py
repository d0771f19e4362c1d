"""Rows to any of Spark's batch writers, through a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from springtide.connectors import Outbox, ParquetFiles, Publication, Sink
from springtide.query.errors import QueryError, SpringtideError, shown
from springtide.query.types import instance, type_text
from springtide.query.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class SparkSink(Sink):
    """Calls a function with the rows of each epoch as a Spark DataFrame, and the epoch's number."""

    function: Callable[[DataFrame, int], Any]

    @property
    def outbox(self) -> Outbox:
        """Tasks write Parquet files, which Spark reads."""
        return ParquetFiles()

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what Spark has no type for, or cannot read from a Parquet file."""
        for name, dtype in schema.items():
            if (wrong := _unknown(dtype)) is not None:
                return f"{name!r} has the type {type_text(wrong)}, which Spark cannot read"
        return None

    def describe(self) -> str:
        """Say which function."""
        return f"spark function {getattr(self.function, '__name__', self.function)}"

    def publish(self, publication: Publication) -> None:
        """Call the function, if there are rows."""
        if not publication.files:
            return
        files = [str(f) for f in publication.files]
        self.function(_session().read.schema(spark_schema(publication.schema)).parquet(*files), publication.epoch)


@usage("st.spark_sink(lambda frame, epoch: frame.write.save('out/'))")
def spark_sink(function: Callable[[DataFrame, int], Any]) -> SparkSink:
    """Call `function(df, epoch)` with a Spark DataFrame for each epoch that has rows.

    The DataFrame exists only during the call: write it, or copy it. After a crash the last epoch may come again, with the same
    rows and the same number; it is up to the function not to write it twice: let it overwrite a partition named after the
    epoch, or use Delta's `txnVersion`.

    >>> def save(df, epoch):
    ...     df.write.mode("overwrite").parquet(f"out/epoch={epoch}")
    >>> st.spark_sink(save).describe()
    'spark function save'
    """
    if not callable(function):
        raise QueryError("(spark_sink)", f"{shown(function)} is not a function", "give one that takes (df, epoch)")
    return SparkSink(function)


def spark_schema(schema: pl.Schema) -> StructType:
    """Return the types as which Spark reads columns of these types from Parquet."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, _spark_type(dtype)) for name, dtype in schema.items()])


def _session() -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        raise SpringtideError(
            "there is no Spark session for the sink st.spark_sink; run the query with query.start(spark, …)"
        ) from None


def _spark_type(dtype: pl.DataType) -> DataType:
    from pyspark.sql import types

    if isinstance(dtype, pl.List | pl.Array):
        return types.ArrayType(_spark_type(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return types.StructType([types.StructField(f.name, _spark_type(instance(f.dtype))) for f in dtype.fields])
    if isinstance(dtype, pl.Decimal):
        return types.DecimalType(dtype.precision, dtype.scale)
    if isinstance(dtype, pl.Datetime):
        return types.TimestampType() if dtype.time_zone else types.TimestampNTZType()
    return types.DataType.fromDDL(_DDL[type(dtype)])


_DDL: dict[type[pl.DataType], str] = {
    pl.Int8: "tinyint",
    pl.Int16: "smallint",
    pl.Int32: "int",
    pl.Int64: "bigint",
    pl.UInt8: "smallint",
    pl.UInt16: "int",
    pl.UInt32: "bigint",
    pl.UInt64: "decimal(20, 0)",
    pl.Float32: "float",
    pl.Float64: "double",
    pl.String: "string",
    pl.Categorical: "string",
    pl.Enum: "string",
    pl.Boolean: "boolean",
    pl.Binary: "binary",
    pl.Date: "date",
}
"""Unsigned integers have no type of their own in Spark: they come in the next larger one."""


def _unknown(dtype: pl.DataType) -> pl.DataType | None:
    """Find a part of a type that Spark does not know."""
    if isinstance(dtype, pl.List | pl.Array):
        return _unknown(instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        parts = (_unknown(instance(f.dtype)) for f in dtype.fields)
        return next((p for p in parts if p is not None), None) if dtype.fields else dtype
    known = type(dtype) in _DDL or isinstance(dtype, pl.Decimal)
    return None if known or (isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns") else dtype
