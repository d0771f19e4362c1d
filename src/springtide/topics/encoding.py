"""From columns to the bytes of records: one format each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from springtide.query.types import TS, instance, type_text
from springtide.topics import avro, protobuf, wire
from springtide.topics.avro_schemas import Unreadable, schema_of
from springtide.topics.protobuf import Message
from springtide.topics.registry import Registered, Registry

FORMATS = ("json", "csv", "avro", "protobuf", "text", "bytes")


@dataclass(frozen=True)
class Coding:
    """How rows become the values of records."""

    format: str
    registry: Registry | None = None
    """Where the schema is registered whose id each value carries; None: values carry no id."""
    subject: str = ""
    message: Message | None = None
    separator: str = ","
    """Between the fields of a CSV line."""

    def unfit(self, schema: pl.Schema) -> str | None:
        """Say why rows with these columns cannot be written; None if they can."""
        cut = pl.Datetime | pl.Duration if self.format == "avro" else pl.Duration
        if fine := [name for name, dtype in schema.items() if _has_nanoseconds(dtype, cut)]:
            return f"the column {fine[0]!r} is {type_text(schema[fine[0]])}, whose nanoseconds would be lost: cast it to microseconds"
        if self.format == "protobuf":
            assert self.message is not None
            return self.message.unfit(schema)
        if self.format == "avro":
            try:
                schema_of(schema, self.record)
            except Unreadable as error:
                return str(error)
        if strange := [name for name, dtype in schema.items() if _has_no_form(dtype)]:
            return f"the column {strange[0]!r} is {type_text(schema[strange[0]])}, which cannot be written as {self.format}"
        if self.format == "csv" and (nested := [n for n, t in schema.items() if t.is_nested()]):
            return f"the column {nested[0]!r} is {type_text(schema[nested[0]])}, which cannot be a field of a CSV line"
        return None

    @property
    def record(self) -> str:
        """The name of the Avro record that rows become."""
        return "".join(c if c.isascii() and c.isalnum() else "_" for c in f"row_{self.subject}")

    def head(self, schema: pl.Schema) -> bytes:
        """Return the bytes that come before each value, with the id of the schema, which is registered for it."""
        if self.registry is None:
            return b""
        if self.format == "avro":
            found = Registered("AVRO", json.dumps(schema_of(schema, self.record)))
            return wire.head(self.registry.register(self.subject, found))
        assert self.message is not None
        return wire.head(self.registry.register(self.subject, protobuf.written(self.message))) + self.message.indexes


def unfit(schema: pl.Schema, coding: Coding, key: str | None, partition: str | None = None) -> str | None:
    """Say why rows with these columns cannot be written; None if they can."""
    format = coding.format
    if key is not None and schema.get(key) not in (pl.String, pl.Binary):
        found = f"is {type_text(schema[key])}" if key in schema else "does not exist"
        return f"the key is the column {key!r}, which {found}: it must be a string or bytes"
    if format not in ("text", "bytes"):
        return coding.unfit(schema)
    wanted = pl.String() if format == "text" else pl.Binary()
    if schema.get("value") != wanted:
        return f"value={format!r} writes the column 'value', which must exist as {type_text(wanted)}"
    others = [name for name in schema if name not in ("value", key, partition, TS)]
    return f"value={format!r} would leave the column {others[0]!r} out" if others else None


def encoded(
    rows: pl.DataFrame, coding: Coding, key: str | None, head: bytes
) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
    """Return the values and the keys of the records; `head` comes before each value that has a schema."""
    keys: Sequence[bytes | None] = [None] * rows.height if key is None else rows[key].cast(pl.Binary).to_list()
    if coding.format == "avro":
        return [head + value for value in avro.encode(rows)], keys
    if coding.message is not None:
        return [head + value for value in protobuf.encode(rows, coding.message)], keys
    if coding.format == "csv":
        return csv_lines(rows, coding.separator).cast(pl.Binary).to_list(), keys
    column = json_objects(rows) if coding.format == "json" else rows["value"]
    return column.cast(pl.Binary).to_list(), keys


def _has_nanoseconds(dtype: pl.DataType, kinds: Any) -> bool:
    if isinstance(dtype, pl.List | pl.Array):
        return _has_nanoseconds(instance(dtype.inner), kinds)
    if isinstance(dtype, pl.Struct):
        return any(_has_nanoseconds(instance(f.dtype), kinds) for f in dtype.fields)
    return isinstance(dtype, kinds) and dtype.time_unit == "ns"


def _has_no_form(dtype: pl.DataType) -> bool:
    """Return whether there are Python objects in a type, structs without fields, or maps of anything but texts, numbers and booleans by texts."""
    if isinstance(dtype, pl.List | pl.Array):
        return _has_no_form(instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return not dtype.fields or any(_has_no_form(instance(f.dtype)) for f in dtype.fields)
    if isinstance(dtype, pl.Map):
        value = instance(dtype.value)
        return (
            dtype.key != pl.String or not (value.is_numeric() or value in (pl.String, pl.Boolean)) or value.is_decimal()
        )
    return isinstance(dtype, pl.Object)


def json_objects(rows: pl.DataFrame) -> pl.Series:
    """Write rows as JSON objects: times as ISO 8601, decimals as text, bytes in base64, lengths of time in microseconds.

    `st.kafka` reads them again, though not all as the types that they had: bytes, and what is inside of lists and objects besides numbers, booleans
    and text, as text; lengths of time as integers; arrays as lists.

    >>> json_objects(pl.DataFrame({"n": [1.5], "raw": [[b"k"]]}))[0]
    '{"n":1.5,"raw":["aw=="]}'
    """
    plain = [_plain(pl.col(name), dtype).alias(name) for name, dtype in rows.schema.items()]
    return rows.select(pl.struct(plain).struct.json_encode()).to_series()


def csv_lines(rows: pl.DataFrame, separator: str) -> pl.Series:
    """Write rows as CSV lines that `st.kafka` reads again as it does JSON objects: null is nothing, an empty string is in quotes.

    >>> csv_lines(pl.DataFrame({"n": [1, None], "s": ["a;b", ""]}), ";").to_list()
    ['1;"a;b"', ';""']
    """
    fields = [_field(_plain(pl.col(name), dtype).cast(pl.String), separator) for name, dtype in rows.schema.items()]
    return rows.select(pl.concat_str(fields, separator=separator)).to_series()


def _field(text: pl.Expr, separator: str) -> pl.Expr:
    special = pl.any_horizontal(text.str.contains(s, literal=True) for s in (separator, '"', "\r", "\n")) | (text == "")
    quoted = pl.concat_str(pl.lit('"'), text.str.replace_all('"', '""', literal=True), pl.lit('"'))
    return pl.when(special).then(quoted).otherwise(text).fill_null("")


def _plain(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return a column in types that JSON has, or that are written there as they are to be written; what is inside of lists and structs too."""
    if isinstance(dtype, pl.Array):
        return _plain(column.arr.to_list(), pl.List(dtype.inner))
    if isinstance(dtype, pl.List):
        return column.list.eval(_plain(pl.element(), instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        fields = [_plain(column.struct.field(f.name), instance(f.dtype)).alias(f.name) for f in dtype.fields]
        return pl.when(column.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.Datetime):
        utc = column.dt.convert_time_zone("UTC") if dtype.time_zone else column
        digits = 9 if dtype.time_unit == "ns" else 6
        return utc.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.{digits}f{'Z' if dtype.time_zone else ''}")
    if dtype == pl.Date:
        return column.dt.strftime("%Y-%m-%d")
    if dtype == pl.Time:
        return column.dt.strftime("%H:%M:%S%.f")
    if isinstance(dtype, pl.Decimal | pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    if isinstance(dtype, pl.Duration):
        return column.dt.total_microseconds()
    if dtype == pl.Binary:
        return column.bin.encode("base64")
    return column
