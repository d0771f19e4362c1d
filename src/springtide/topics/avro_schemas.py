"""Avro schemas, and the columns that they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from springtide.query.types import TIME, instance, type_text

_PLAIN: dict[str, pl.DataType] = {
    "null": pl.Null(),
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "bytes": pl.Binary(),
    "string": pl.String(),
}
_LOGICAL: dict[tuple[str, str], pl.DataType] = {
    ("long", "timestamp-micros"): TIME,
    ("long", "timestamp-millis"): pl.Datetime("ms", "UTC"),
    ("long", "local-timestamp-micros"): pl.Datetime("us"),
    ("long", "local-timestamp-millis"): pl.Datetime("ms"),
    ("int", "date"): pl.Date(),
    ("int", "time-millis"): pl.Time(),
    ("long", "time-micros"): pl.Time(),
}
_NAMED = ("record", "error", "enum", "fixed")


class Unreadable(Exception):
    """Raised when there are no columns for a schema; says why."""


@dataclass(frozen=True)
class Columns:
    """A record of Avro as columns."""

    columns: pl.Schema
    defaults: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    """Columns that must have been written: they have no default."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def parsed(schema: Any) -> dict[str, Any]:
    """Return a schema that is a record, given as text or parsed; raise `Unreadable` otherwise."""
    try:
        found = json.loads(schema) if isinstance(schema, str) else schema
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    if not isinstance(found, Mapping) or found.get("type") not in ("record", "error") or "fields" not in found:
        raise Unreadable("it is not a record")
    return dict(found)


def columns_of(schema: Mapping[str, Any]) -> Columns:
    """Return the columns of a record, and what its schema says of those that were not written.

    >>> columns_of(
    ...     {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "long"], "default": None}]}
    ... ).columns
    Schema([('n', Int64)])
    """
    types = _Types()
    columns = {f["name"]: types.of(f["type"]) for f in schema["fields"]}
    defaults = {f["name"]: f["default"] for f in schema["fields"] if f.get("default") is not None}
    required = frozenset(f["name"] for f in schema["fields"] if "default" not in f)
    aliases = {f["name"]: tuple(f["aliases"]) for f in schema["fields"] if f.get("aliases")}
    return Columns(pl.Schema(columns), defaults, required, aliases)


class _Types:
    """Types by name, in the order in which they are defined."""

    def __init__(self) -> None:
        self._named: dict[str, pl.DataType] = {}

    def of(self, schema: Any) -> pl.DataType:
        if isinstance(schema, str):
            found = _PLAIN.get(schema) or self._named.get(schema.rpartition(".")[2])
            if found is None:
                raise Unreadable(f"it has the type {schema!r}, which it does not define")
            return found
        if isinstance(schema, list):
            kinds = [s for s in schema if s != "null"]
            if len(kinds) != 1:
                raise Unreadable("it has a union of several types, which cannot be a column")
            return self.of(kinds[0])
        made = self._made(schema)
        if schema["type"] in _NAMED:
            self._named[schema["name"].rpartition(".")[2]] = made
        return made

    def _made(self, schema: Mapping[str, Any]) -> pl.DataType:
        kind, logical = schema["type"], schema.get("logicalType")
        if not isinstance(kind, str):
            return self.of(kind)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return pl.Decimal(schema["precision"], schema.get("scale", 0))
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, str(logical)]
        if kind in ("record", "error"):
            return pl.Struct({f["name"]: self.of(f["type"]) for f in schema["fields"]})
        if kind == "array":
            return pl.List(self.of(schema["items"]))
        if kind == "map":
            return pl.List(pl.Struct({"key": pl.String(), "value": self.of(schema["values"])}))
        return pl.String() if kind == "enum" else pl.Binary() if kind == "fixed" else self.of(kind)


def types_of(schema: Mapping[str, Any], wanted: pl.Schema) -> dict[str, pl.DataType]:
    """Return the types of a record's fields that are wanted; one that is a union of several types is read as what is wanted."""
    types, found = _Types(), dict[str, pl.DataType]()
    for one in schema["fields"]:
        try:
            found[one["name"]] = types.of(one["type"])
        except Unreadable:
            if one["name"] in wanted:
                found[one["name"]] = wanted[one["name"]]
    return {name: dtype for name, dtype in found.items() if name in wanted}


def without_maps(value: Any, schema: Any) -> Any:
    """Turn the maps in a value, at any depth, into lists of keys and values."""
    if value is None or isinstance(schema, str):
        return value
    if isinstance(schema, list):
        kinds = [s for s in schema if s != "null"]
        return without_maps(value, kinds[0]) if len(kinds) == 1 else value
    kind = schema["type"]
    if kind == "map":
        return [{"key": k, "value": without_maps(v, schema["values"])} for k, v in value.items()]
    if kind == "array":
        return [without_maps(v, schema["items"]) for v in value]
    if kind in ("record", "error"):
        return {f["name"]: without_maps(value[f["name"]], f["type"]) for f in schema["fields"]}
    return value if isinstance(kind, str) else without_maps(value, kind)


def is_columnar(record: Mapping[str, Any]) -> bool:
    """Return whether Polars can read a record: no maps, no unions except with null, no named types, no nested enums."""
    return bool(record["fields"]) and all(_is_columnar(f["type"], inside=False) for f in record["fields"])


def _is_columnar(schema: Any, *, inside: bool) -> bool:
    if isinstance(schema, str):
        return schema in _PLAIN and schema != "null"
    if isinstance(schema, list):
        kinds = [s for s in schema if s != "null"]
        return len(kinds) == 1 and len(schema) <= 2 and _is_columnar(kinds[0], inside=inside)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _is_columnar(kind, inside=inside)
    if kind in ("record", "error"):
        return bool(schema["fields"]) and all(_is_columnar(f["type"], inside=True) for f in schema["fields"])
    if kind == "array":
        return _is_columnar(schema["items"], inside=True)
    if kind == "fixed":
        return bool(schema.get("logicalType") != "duration")
    return not inside if kind == "enum" else kind in _PLAIN and kind != "null"


def bare(schema: Any) -> Any:
    """Leave out what reading does not need, since Polars does not understand all of it: defaults, documentation, aliases."""
    if isinstance(schema, list):
        return [bare(s) for s in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {k: v for k, v in schema.items() if k not in ("doc", "default", "aliases", "order")}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = bare(kept[key])
    if "fields" in kept:
        kept["fields"] = [bare(f) for f in kept["fields"]]
    return kept


def schema_of(columns: pl.Schema, name: str) -> dict[str, Any]:
    """Return a schema for columns; each may be null. Raise `Unreadable` if there is none.

    >>> schema_of(pl.Schema({"n": pl.Int8()}), "R")["fields"]
    [{'name': 'n', 'type': ['null', 'int'], 'default': None}]
    """
    fields = [{"name": n, "type": ["null", _written(t, f"{name}_{n}")], "default": None} for n, t in columns.items()]
    made = {"type": "record", "name": name, "fields": fields}
    names = [*_records(made)]
    for record in names:
        for field_name in (one["name"] for one in record["fields"]):
            if not field_name.isascii() or not field_name.isidentifier():
                raise Unreadable(
                    f"the column {field_name!r} cannot be the name of a field: use ASCII letters, digits and _"
                )
    all_names = [record["name"] for record in names]
    if twice := [n for n in all_names if all_names.count(n) > 1]:
        raise Unreadable(f"two records would both be called {twice[0]!r}: rename a column")
    return made


def _records(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Return the records in a schema that was made here, itself included."""
    if isinstance(schema, list):
        for kind in schema:
            yield from _records(kind)
    elif isinstance(schema, Mapping) and schema["type"] == "array":
        yield from _records(schema["items"])
    elif isinstance(schema, Mapping) and schema["type"] == "record":
        yield schema
        for one in schema["fields"]:
            yield from _records(one["type"])


def _written(dtype: pl.DataType, name: str) -> Any:
    if isinstance(dtype, pl.Datetime):
        return {"type": "long", "logicalType": f"{'' if dtype.time_zone else 'local-'}timestamp-micros"}
    if isinstance(dtype, pl.Decimal):
        return {"type": "bytes", "logicalType": "decimal", "precision": dtype.precision, "scale": dtype.scale}
    if isinstance(dtype, pl.List):
        return {"type": "array", "items": ["null", _inside(instance(dtype.inner), f"{name}_item")]}
    if isinstance(dtype, pl.Struct):
        fields = [
            {"name": f.name, "type": ["null", _inside(instance(f.dtype), f"{name}_{f.name}")]} for f in dtype.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if dtype == pl.Date:
        return {"type": "int", "logicalType": "date"}
    if dtype == pl.Time:
        return {"type": "long", "logicalType": "time-micros"}
    physical = physical_type(dtype)
    found = next((k for k, t in _PLAIN.items() if t == physical), None)
    if found is None or physical == pl.Null:
        raise Unreadable(f"Avro has no type for {type_text(dtype)}")
    return found


def _inside(dtype: pl.DataType, name: str) -> Any:
    if dtype == pl.Time or (isinstance(dtype, pl.Datetime | pl.Duration) and dtype.time_unit != "us"):
        raise Unreadable(f"{type_text(dtype)} inside a list or an object is not supported")
    return _written(dtype, name)


def physical_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type that Polars writes in the same bytes that Avro uses for values of this one."""
    if isinstance(dtype, pl.List):
        return pl.List(physical_type(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({f.name: physical_type(instance(f.dtype)) for f in dtype.fields})
    if isinstance(dtype, pl.Datetime | pl.Duration) or dtype == pl.Time:
        return pl.Int64()
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    if dtype in (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16):
        return pl.Int32()
    return pl.Int64() if dtype == pl.UInt32 else dtype
