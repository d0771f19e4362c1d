"""Protobuf, by whole columns: `ptars` reads the bytes of messages into Arrow, and writes them from it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

import polars as pl
import pyarrow as pa

from springtide.query.errors import QueryError
from springtide.query.errors import shown as shown_value
from springtide.query.types import type_text
from springtide.topics import wire
from springtide.topics.avro import in_order, put_together
from springtide.topics.evolving import RowsAndFaults, adapted, grown
from springtide.topics.registry import Registered, Registry, Unknown
from springtide.topics.values import TOMBSTONE, Bytes, Parsed, series
from springtide.topics.wire import Undecodable

_ENDS = (-(2**63), 2**63 - 1)
"""The first and the last of 64 bits."""


class _Unreadable(Exception):
    """Raised when there is no message for a schema; says why."""


@dataclass(frozen=True)
class Message:
    """A message type as plain data: it is sent to tasks that do not have the code generated for it."""

    name: str
    files: tuple[bytes, ...]
    """Descriptors of its file and of the files that it imports, which come first."""

    @staticmethod
    def of(step: str, given: Any) -> Message:
        """Return the type that a generated class, or its descriptor, stands for."""
        Message.check(step)
        descriptor = getattr(given, "DESCRIPTOR", given)
        if not hasattr(descriptor, "full_name") or not hasattr(descriptor, "fields_by_name"):
            raise QueryError(
                step, f"message={shown_value(given)} is not the class of a message", "give one that protoc generated"
            )
        found: dict[str, bytes] = {}
        _add_files(descriptor.file, found)
        return Message(descriptor.full_name, tuple(found.values()))

    @staticmethod
    def check(step: str) -> None:
        """Refuse if the library that reads messages is not installed."""
        if find_spec("ptars") is None:
            raise QueryError(step, "the package ptars is not installed", "pip install 'springtide[protobuf]'")

    @property
    def file(self) -> bytes:
        """The descriptor of the file that it is in."""
        return self.files[-1]

    @property
    def indexes(self) -> bytes:
        """Return which message of its file it is, as the bytes before a value say it: indexes from the outermost message inwards."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto.FromString(self.file)
        found, places = file.message_type, list[int]()
        for name in self.name.removeprefix(f"{file.package}." if file.package else "").split("."):
            places.append([m.name for m in found].index(name))
            found = found[places[-1]].nested_type
        if places == [0]:
            return b"\x00"
        return wire.varint(len(places)) + b"".join(map(wire.varint, places))

    def columns(self) -> pl.Schema:
        """Return the columns of such messages."""
        frame = pl.from_arrow(_handler(self).schema().empty_table())
        assert isinstance(frame, pl.DataFrame)
        return frame.schema

    def unfit(self, columns: pl.Schema) -> str | None:
        """Say why rows with these columns cannot be written as such messages."""
        fields = self.columns()
        for name, dtype in columns.items():
            if name not in fields:
                return f"the message {self.name} has no field {name!r}"
            if (symbols := _symbols(self, name)) is not None:
                if not isinstance(dtype, pl.Enum) or not set(dtype.categories) <= set(symbols):
                    return (
                        f"column {name!r} must be pl.Enum with symbols of the enum in {self.name}: {', '.join(symbols)}"
                    )
            elif not grown(dtype, fields[name]) or not _holds(fields[name], dtype):
                return (
                    f"column {name!r} is {type_text(dtype)}, but the field of {self.name} is {type_text(fields[name])}"
                )
        return None


def _symbols(message: Message, field: str) -> list[str] | None:
    """Return the symbols of a field that is an enum, the default first; None if it is not an enum."""
    kind = _descriptor(message).fields_by_name[field].enum_type
    return None if kind is None else [v.name for v in sorted(kind.values, key=lambda v: v.number != 0)]


def _holds(field: pl.DataType, column: pl.DataType) -> bool:
    """Return whether every value of an integer column fits a field."""
    if not (column.is_integer() and field.is_integer()):
        return True
    extremes: Any = (field, column)  # Polars does not say that integers have them
    wide, narrow = (pl.select(low=t.min(), high=t.max()).row(0) for t in extremes)
    return bool(wide[0] <= narrow[0] and narrow[1] <= wide[1])


def _add_files(file: Any, found: dict[str, bytes]) -> None:
    for other in file.dependencies:
        _add_files(other, found)
    found.setdefault(file.name, file.serialized_pb)


@lru_cache(256)
def _descriptor(message: Message) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in message.files:
        pool.AddSerializedFile(file)
    return pool.FindMessageTypeByName(message.name)


@lru_cache(256)
def _handler(message: Message) -> Any:
    from ptars import HandlerPool, PtarsConfig

    descriptor = _descriptor(message)
    config = PtarsConfig(timestamp_unit="us", duration_unit="us", enum_repr="string")
    return HandlerPool([descriptor.file], config=config).get_for_message(descriptor)


@dataclass(frozen=True)
class ProtobufReader:
    """Reads records into columns."""

    columns: pl.Schema
    registry: Registry | None = None
    """The registry with the schemas whose ids the records carry; None: they are bare messages."""
    message: Message | None = None
    """The message that they are read as; None: the one that their schemas name."""

    def read(self, values: Bytes) -> Parsed:
        """Read the values of records."""
        column = series(values)
        wrong: dict[int, str] = dict.fromkeys(column.is_null().arg_true(), TOMBSTONE)
        frames, numbers = [pl.DataFrame(schema=self.columns)], [pl.Series([], dtype=pl.Int64)]
        groups: Iterable[tuple[wire.Group, tuple[int, ...]]]
        if self.registry is None:
            there = column.is_not_null().arg_true().cast(pl.Int64)
            groups = [(wire.Group(-1, there, column.gather(there)), (0,))] if there.len() else []
        else:
            found, headless = wire.groups(column)
            wrong |= headless
            groups = [part for group in found for part in _by_message(group, wrong)]
        for group, places in groups:
            try:
                message = self.message or _registered(self.registry, group.id, places)
            except _Unreadable as error:
                wrong |= dict.fromkeys(group.numbers, f"schema {group.id} cannot be read: {error}")
                continue
            rows, these, faults = put_together(group, self.columns, partial(self._decoded, message))
            frames.append(rows)
            numbers.append(these)
            wrong |= faults
        return in_order(frames, numbers, wrong)

    def _decoded(self, message: Message, bodies: Sequence[bytes]) -> RowsAndFaults:
        try:
            rows = pl.from_arrow(_handler(message).list_to_record_batch(bodies))
        except (ValueError, pl.exceptions.PanicException) as error:
            raise Undecodable(f"it is not a {message.name}: {error}") from None
        assert isinstance(rows, pl.DataFrame)
        found, wrong = adapted(rows, self.columns, {}, {})
        for column in (c for c in rows if c.name in self.columns and isinstance(c.dtype, pl.Datetime | pl.Duration)):
            for i in (
                column.to_physical().is_in(_ENDS).arg_true()
            ):  # what the library makes of anything that is further away
                wrong.setdefault(i, f"column {column.name!r}: it does not fit 64 bits of microseconds")
        return found, wrong


def _by_message(group: wire.Group, wrong: dict[int, str]) -> Iterable[tuple[wire.Group, tuple[int, ...]]]:
    """Tell the messages of one schema apart: after its id comes which message of the file it is."""
    numbers, bodies = group.numbers, group.bodies
    while bodies.len():
        try:
            places, size = _indexes(bodies[0])
        except IndexError:
            wrong[numbers[0]] = "it ends before it says which message it is"
            numbers, bodies = numbers[1:], bodies[1:]
            continue
        same = bodies.bin.starts_with(bodies[0][:size])
        yield wire.Group(group.id, numbers.filter(same), bodies.filter(same).bin.slice(size)), places
        numbers, bodies = numbers.filter(~same), bodies.filter(~same)


def _indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message it is, and how many bytes say so.

    >>> _indexes(b"\\x00..."), _indexes(b"\\x04\\x02\\x00...")
    (((0,), 1), ((1, 0), 3))
    """
    count, at = wire.read_varint(body, 0)
    if not 0 <= count <= 64:
        raise IndexError
    places = []
    for _ in range(count):
        place, at = wire.read_varint(body, at)
        places.append(place)
    return tuple(places) or (0,), at


@lru_cache(1024)
def _registered(registry: Registry, id: int, places: tuple[int, ...]) -> Message:
    """Return the message that a schema of the registry has at a place."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        schema = registry.schema(id)
        if schema.kind != "PROTOBUF":
            raise _Unreadable(f"it is {schema.kind}, not PROTOBUF")
        files: dict[str, bytes] = {}
        main = _collect(registry, schema, files)
    except Unknown as error:
        raise _Unreadable(f"the registry does not have it: {error}") from None
    file = FileDescriptorProto.FromString(main)
    found, names = file.message_type, [file.package] if file.package else []
    for place in places:
        if not 0 <= place < len(found):
            raise _Unreadable(f"it has no message at {places}")
        names.append(found[place].name)
        found = found[place].nested_type
    return Message(".".join(names), (*files.values(), main))


def _collect(registry: Registry, schema: Registered, files: dict[str, bytes]) -> bytes:
    """Return the descriptor of a schema's file, and add those that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError):
        raise _Unreadable(
            "this registry returns only the text of a .proto file; say what the messages are: st.kafka(…, message=…)"
        ) from None
    known = {name: (subject, version) for name, subject, version in schema.references}
    for name in file.dependency:
        if name in files:
            continue
        if name in known:
            files[name] = _collect(registry, registry.version(*known[name]), files)
        else:
            files[name] = _common(name)
    return bytes(file.SerializeToString())


def _common(name: str) -> bytes:
    """Return a file that comes with Protobuf, such as google/protobuf/timestamp.proto."""
    from google.protobuf import duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, empty_pb2, struct_pb2):
        if module.DESCRIPTOR.name == name:
            return bytes(module.DESCRIPTOR.serialized_pb)
    raise _Unreadable(f"it imports {name}, which the registry does not refer to")


def written(message: Message) -> Registered:
    """Return a message's file as a schema for the registry, in the form that Confluent's Python client uses."""
    return Registered("PROTOBUF", base64.b64encode(message.file).decode())


def imports(message: Message) -> list[str]:
    """Return the files that a message's file imports, except those that come with Protobuf."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    names = [FileDescriptorProto.FromString(file).name for file in message.files[:-1]]
    return [name for name in names if not name.startswith("google/protobuf/")]


def encode(rows: pl.DataFrame, message: Message) -> list[bytes]:
    """Write rows as messages; a field that is null or has no column is not set."""
    fields = message.columns()
    full, wrong = adapted(rows, fields, {}, {})
    assert not wrong, wrong
    schema: pa.Schema = _handler(message).schema()
    table = full.to_arrow(compat_level=pl.CompatLevel.oldest())
    arrays = [_filled(table.column(f.name).combine_chunks(), f, _symbols(message, f.name)) for f in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    found: list[bytes] = _handler(message).record_batch_to_array(batch).to_pylist()
    return found


def unfit_rows(rows: pl.DataFrame) -> str | None:
    """Say which column has a null inside a list, which a message cannot hold; None if none has.

    >>> unfit_rows(pl.DataFrame({"a": [None, [1]], "b": [[None], [2]]}))
    "'b' has a null inside a list"
    """
    wrong = next((column.name for column in rows if _has_null_elements(column)), None)
    return None if wrong is None else f"{wrong!r} has a null inside a list"


def _has_null_elements(column: pl.Series) -> bool:
    there = column.drop_nulls()
    if isinstance(column.dtype, pl.Array):
        there = there.arr.to_list()
    if isinstance(there.dtype, pl.List):
        inside = there.filter(there.list.len() > 0).explode()
        return inside.null_count() > 0 or _has_null_elements(inside)
    if isinstance(there.dtype, pl.Struct):
        return any(_has_null_elements(there.struct.field(name)) for name in there.struct.fields)
    return False


def _filled(array: Any, field: Any, symbols: Sequence[str] | None = None) -> Any:
    """Convert a column to a field's type; where a field cannot be null, it has its default instead."""
    if pa.types.is_struct(field.type):
        parts = [_filled(array.field(i), field.type.field(i)) for i in range(field.type.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=array.is_null())
    if pa.types.is_list(field.type) or pa.types.is_map(field.type):
        return pa.array([v if v is not None else [] for v in array.to_pylist()], field.type)
    cast = array.cast(field.type)
    if field.nullable or not cast.null_count:
        return cast
    zero: Mapping[Any, Any] = {pa.string(): "", pa.binary(): b"", pa.bool_(): False}
    return cast.fill_null(symbols[0] if symbols else zero.get(field.type, 0))
