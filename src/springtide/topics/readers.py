"""What a user says about values that have schemas of their own, and what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import polars as pl

from springtide.query.errors import QueryError
from springtide.query.errors import shown as shown_value
from springtide.query.types import schema_from, schema_text
from springtide.topics.avro import AvroReader
from springtide.topics.avro_schemas import Unreadable, columns_of, parsed
from springtide.topics.protobuf import Message, ProtobufReader
from springtide.topics.registry import Registry


def reader_of(
    step: str, value: str, schema: Any, registry: Registry | None, message: Any
) -> AvroReader | ProtobufReader | None:
    """Return the reader of a format; None if it needs neither schemas nor a registry. Refuse what is wrong."""
    if message is not None and value != "protobuf":
        raise QueryError(step, f"message= is for value='protobuf', not for {value!r}", "leave it out")
    if value == "avro":
        return _avro(step, schema, registry)
    if value == "protobuf":
        return _protobuf(step, schema, registry, message)
    if registry is not None:
        raise QueryError(step, f"registry= is for Avro and Protobuf, not for {value!r}", "leave it out")
    return None


def check_avro(step: str) -> None:
    """Refuse if the library that reads Avro is not installed."""
    if find_spec("fastavro") is None:
        raise QueryError(step, "the package fastavro is not installed", "pip install 'springtide[avro]'")


def _avro(step: str, schema: Any, registry: Registry | None) -> AvroReader:
    check_avro(step)
    if schema is None:
        raise QueryError(
            step,
            "value='avro' needs a schema",
            "give the columns, schema={'src': pl.String, …}, or an Avro schema",
        )
    own = isinstance(schema, str) or (isinstance(schema, Mapping) and isinstance(schema.get("fields"), list))
    if not own:
        if registry is None:
            raise QueryError(
                step, "it is unknown how the values were written", "give registry=…, or an Avro schema as schema="
            )
        return AvroReader(schema_from(step, "schema", schema), registry)
    try:
        record = parsed(schema)
        found = columns_of(record)
        pl.DataFrame({n: pl.Series([v], dtype=found.columns[n], strict=True) for n, v in found.defaults.items()})
    except Unreadable as error:
        raise QueryError(step, f"schema={shown_value(schema)}: {error}", "give the columns instead") from None
    except (KeyError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise QueryError(step, f"schema={shown_value(schema)} is not an Avro schema: {error}", "correct it") from None
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return AvroReader(found.columns, registry, text, found.defaults, found.required, found.aliases)


def _protobuf(step: str, schema: Any, registry: Registry | None, message: Any) -> ProtobufReader:
    Message.check(step)
    kind = Message.of(step, message) if message is not None else None
    if kind is None and registry is None:
        raise QueryError(step, "it is unknown what the messages are", "give their class, message=…, or registry=…")
    if kind is None and schema is None:
        raise QueryError(
            step, "value='protobuf' needs a schema", "write schema={'src': pl.String, …}, or give message=…"
        )
    fields = kind.columns() if kind is not None else pl.Schema()
    columns = fields if schema is None else schema_from(step, "schema", schema)
    if kind is not None and (other := [n for n in columns if n not in fields]):
        raise QueryError(step, f"{kind.name} has no field {other[0]!r}", f"it has {schema_text(fields)}")
    return ProtobufReader(columns, registry, kind)
