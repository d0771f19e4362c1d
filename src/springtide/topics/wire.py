"""The bytes around a value that say which schema it was written with: a zero, and the schema's id in four bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

T = TypeVar("T")

HEAD = 5
_ZERO = b"\x00"


@dataclass(frozen=True)
class Group:
    """Records of one schema."""

    id: int
    numbers: pl.Series
    bodies: pl.Series
    """What follows the schema id."""


def head(id: int) -> bytes:
    """Return the bytes before a value.

    >>> head(7)
    b'\\x00\\x00\\x00\\x00\\x07'
    """
    return _ZERO + id.to_bytes(4)


def groups(values: pl.Series) -> tuple[list[Group], dict[int, str]]:
    """Group records that were written with the same schema, and say which carry no schema id. Nulls are left out.

    >>> found, wrong = groups(pl.Series([head(1) + b"a", b"?", head(2) + b"b", head(1) + b"c"]))
    >>> [(g.id, g.numbers.to_list(), g.bodies.to_list()) for g in found], wrong
    ([(1, [0, 3], [b'a', b'c']), (2, [2], [b'b'])], {1: 'it does not begin with a zero and the id of a schema'})
    """
    frame = pl.DataFrame({"number": pl.int_range(values.len(), eager=True), "value": values}).drop_nulls()
    frame = frame.with_columns(head=pl.col("value").bin.slice(0, HEAD))
    sound = pl.col("head").bin.starts_with(_ZERO) & (pl.col("head").bin.size() == HEAD)
    wrong = dict.fromkeys(frame.filter(~sound)["number"], "it does not begin with a zero and the id of a schema")
    frame = frame.filter(sound) if wrong else frame
    parts = frame.partition_by("head", maintain_order=True, as_dict=True) if frame.height else {}
    return [
        Group(int.from_bytes(key[0][1:]), part["number"], part["value"].bin.slice(HEAD)) for key, part in parts.items()
    ], wrong


def varint(number: int) -> bytes:
    """Write a number as Avro and the message indexes of Protobuf do: zigzag, seven bits per byte.

    >>> varint(0), varint(-1), varint(300)
    (b'\\x00', b'\\x01', b'\\xd8\\x04')
    """
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the offset after it; raise an IndexError if the data end too early.

    >>> read_varint(b"\\xd8\\x04", 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at


class Undecodable(Exception):
    """Raised when some of the records do not match their schema."""


def sift(bodies: Sequence[bytes], decode: Callable[[Sequence[bytes]], T]) -> Iterator[tuple[int, T | str]]:
    """Decode records all at once; if some cannot be decoded, in halves, until exactly those are found. Return index → rows, or the reason."""
    todo = [(0, len(bodies))]
    while todo:
        first, stop = todo.pop()
        if first == stop:
            continue
        try:
            yield first, decode(bodies[first:stop])
        except Undecodable as error:
            if stop - first == 1:
                yield first, str(error)
            else:
                middle = (first + stop) // 2
                todo += [(middle, stop), (first, middle)]
