"""Avro, by whole columns: records of one schema are put together as an Avro file in memory, which Polars reads and writes.

Between the records is a mark of random bytes, which the schema in the file declares as a last field. If every row ends with it, every record was read from
its first byte to its last; a record that is too long or too short cannot be mistaken for the beginning of another.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import polars as pl

from springtide.topics import wire
from springtide.topics.avro_schemas import Unreadable, bare, is_columnar, parsed, physical_type, types_of, without_maps
from springtide.topics.evolving import RowsAndFaults, adapted
from springtide.topics.registry import Registry, Unknown
from springtide.topics.values import TOMBSTONE, Bytes, Faults, Parsed, series
from springtide.topics.wire import Undecodable, varint

MARK = "springtide_mark"
_SIZE = 16
_FIXED = {"name": MARK, "type": {"type": "fixed", "name": MARK, "size": _SIZE}}
_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


@dataclass(frozen=True)
class AvroReader:
    """Reads records into columns."""

    columns: pl.Schema
    registry: Registry | None = None
    """Where the schemas of the records are; None: all are written with `own`, and carry no schema id."""
    own: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def read(self, values: Bytes) -> Parsed:
        """Read the values of records."""
        column = series(values)
        wrong: dict[int, str] = dict.fromkeys(column.is_null().arg_true(), TOMBSTONE)
        if self.registry is None:
            there = column.is_not_null().arg_true().cast(pl.Int64)
            groups = [wire.Group(-1, there, column.gather(there))] if there.len() else []
        else:
            groups, headless = wire.groups(column)
            wrong |= headless
        frames, numbers = [pl.DataFrame(schema=self.columns)], [pl.Series([], dtype=pl.Int64)]
        for group in groups:
            rows, places, faults = self._group(group)
            frames.append(rows)
            numbers.append(places)
            wrong |= faults
        return in_order(frames, numbers, wrong)

    def _group(self, group: wire.Group) -> tuple[pl.DataFrame, pl.Series, dict[int, str]]:
        """Read the records of one schema."""
        what = f"schema {group.id}" if self.registry is not None else "the schema"
        try:
            schema = _schema(self.registry, group.id) if self.registry is not None else parsed(self.own)
            names = {f["name"] for f in schema["fields"]}
            aliases = {c: next((a for a in found if a in names), c) for c, found in self.aliases.items()}
            if lacking := [c for c in self.required if aliases.get(c, c) not in names and c not in names]:
                raise Unreadable(
                    f"it has no field {lacking[0]!r}, and the schema of the source gives no default for it"
                )
        except Unreadable as error:
            return (
                pl.DataFrame(schema=self.columns),
                pl.Series([], dtype=pl.Int64),
                dict.fromkeys(group.numbers, f"{what} cannot be read: {error}"),
            )
        columnar = is_columnar(schema)

        def decode(bodies: Sequence[bytes]) -> RowsAndFaults:
            found = _decoded(schema, bodies) if columnar else _decoded_slowly(schema, bodies, self.columns)
            return adapted(found, self.columns, self.defaults, aliases)

        return put_together(group, self.columns, decode)


def put_together(group: wire.Group, columns: pl.Schema, decode: Any) -> tuple[pl.DataFrame, pl.Series, dict[int, str]]:
    """Decode the records of a group: return the rows, the numbers of their records, and why the others cannot be decoded."""
    frames, numbers, faults = [pl.DataFrame(schema=columns)], [pl.Series([], dtype=pl.Int64)], dict[int, str]()
    for first, found in wire.sift(group.bodies.to_list(), decode):
        if isinstance(found, str):
            faults[group.numbers[first]] = found
            continue
        rows, wrong = found
        places = group.numbers[first : first + max(rows.height, len(wrong))]
        if wrong:
            faults |= {places[i]: why for i, why in wrong.items()}
            good = ~pl.int_range(places.len(), eager=True).is_in(list(wrong))
            rows, places = (rows.filter(good) if rows.height else rows), places.filter(good)
        frames.append(rows)
        numbers.append(places)
    return pl.concat(frames), pl.concat(numbers), faults


def in_order(frames: Sequence[pl.DataFrame], numbers: Sequence[pl.Series], faults: Faults) -> Parsed:
    """Put the records of all schemas back into the order in which they came."""
    rows, places = pl.concat(frames), pl.concat(numbers)
    if not places.is_sorted():
        order = places.arg_sort()
        rows, places = rows[order], places.gather(order)
    return Parsed(rows, places, faults)


@lru_cache(1024)
def _schema(registry: Registry, id: int) -> dict[str, Any]:
    """Return the schema with an id, reduced to what reading needs; what it refers to comes first."""
    try:
        found = registry.schema(id)
    except Unknown as error:
        raise Unreadable(f"the registry does not have it: {error}") from None
    if found.kind != "AVRO":
        raise Unreadable(f"it is {found.kind}, not AVRO")
    if found.references:
        raise Unreadable("it refers to other schemas, which is not supported")
    return dict(bare(parsed(found.text)))


def _decoded(schema: Mapping[str, Any], bodies: Sequence[bytes]) -> pl.DataFrame:
    """Read records that were written one after the other."""
    mark = os.urandom(_SIZE)
    framed = dict(schema) | {"fields": [*schema["fields"], _FIXED]}
    data = mark.join(bodies) + mark
    try:
        rows = pl.read_avro(io.BytesIO(_file(framed, len(bodies), data)))
    except _FAULTS:
        raise Undecodable("it does not match its schema") from None
    marks = rows[MARK]
    if rows.height != len(bodies) or (marks != pl.Series([mark], dtype=pl.Binary).new_from_index(0, len(bodies))).any():
        raise Undecodable("it does not match its schema: it is too long or too short")
    return rows.drop(MARK)


def _decoded_slowly(schema: Mapping[str, Any], bodies: Sequence[bytes], columns: pl.Schema) -> pl.DataFrame:
    """Read records one by one: those with maps, unions of several types and types by name, which Polars does not know."""
    import fastavro

    ready = fastavro.parse_schema(dict(schema))
    rows = []
    for body in bodies:
        data = io.BytesIO(body)
        try:
            row = fastavro.schemaless_reader(data, ready, None)
        except Exception as error:  # whatever the library raises
            raise Undecodable(f"it does not match its schema: {type(error).__name__}") from None
        if data.tell() != len(body):
            raise Undecodable("it does not match its schema: it is too long")
        rows.append(without_maps(row, schema))
    types = types_of(schema, columns)
    try:
        return pl.DataFrame({n: pl.Series([r[n] for r in rows], dtype=t, strict=True) for n, t in types.items()})
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise Undecodable(f"it does not fit the columns {', '.join(types)}") from None


def _file(schema: Mapping[str, Any], rows: int, data: bytes) -> bytes:
    """Make an Avro file with one block."""
    sync = os.urandom(_SIZE)
    about = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": b"null"}
    head = b"".join(varint(len(part)) + part for pair in about.items() for part in pair)
    return b"".join(
        (b"Obj\x01", varint(len(about)), head, varint(0), sync, varint(rows), varint(len(data)), data, sync)
    )


def encode(rows: pl.DataFrame) -> list[bytes]:
    """Write rows as Avro: each as a record of the schema that `schema_of` returns for its columns."""
    if not rows.height:
        return []
    mark = os.urandom(_SIZE)
    columns = [_physical(name, dtype) for name, dtype in rows.schema.items()]
    out = io.BytesIO()
    rows.select(*columns, pl.lit(mark, pl.Binary).alias(MARK)).write_avro(out, compression="uncompressed")
    written = varint(1) + varint(_SIZE) + mark  # not null, the length, and the mark
    found = b"".join(_blocks(out.getvalue())).split(written)
    assert len(found) == rows.height + 1
    return found[:-1]


def _physical(name: str, dtype: pl.DataType) -> pl.Expr:
    column, plain = pl.col(name), physical_type(dtype)
    if isinstance(dtype, pl.Datetime):
        utc = column.dt.convert_time_zone("UTC") if dtype.time_zone else column
        return utc.dt.cast_time_unit("us").cast(pl.Int64)
    if isinstance(dtype, pl.Duration):
        return column.dt.total_microseconds()
    if dtype == pl.Time:
        return column.cast(pl.Int64) // 1000
    return column if plain == dtype else column.cast(plain)


def _blocks(file: bytes) -> list[bytes]:
    """Return the data of each block of an Avro file."""
    at, found = 4, list[bytes]()
    while True:  # the header: names and values
        count, at = wire.read_varint(file, at)
        if not count:
            break
        for _ in range(2 * count):
            size, at = wire.read_varint(file, at)
            at += size
    at += _SIZE
    while at < len(file):
        _, at = wire.read_varint(file, at)
        size, at = wire.read_varint(file, at)
        found.append(file[at : at + size])
        at += size + _SIZE
    return found
