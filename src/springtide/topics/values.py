"""From the bytes of records to columns: one format each. All records of a range are read at once."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from springtide.sources.csv import read_fields
from springtide.sources.json_objects import ObjectReader
from springtide.sources.text_columns import others, typed

Bytes = Sequence[bytes | None]
Faults = dict[int, str]
"""Number of a record → why it does not fit."""

TOMBSTONE = "the record has no value"


@dataclass(frozen=True)
class Parsed:
    """What records turned out to be."""

    rows: pl.DataFrame
    numbers: pl.Series
    """Which records the rows are."""
    faults: Faults


def parser(format: str, columns: pl.Schema, separator: str) -> Callable[[Bytes], Parsed]:
    """Return what reads the values of a format."""
    if format == "json":
        reader = ObjectReader(columns)
        return lambda values: _json(values, reader, columns)
    if format == "csv":
        return lambda values: _csv(values, columns, separator)
    (name,) = columns
    return lambda values: _text(values, name) if format == "text" else _raw(values, name)


def text_column(values: Bytes) -> tuple[pl.Series, dict[int, str]]:
    """Return values as text, null where there is none, and the reason for each that is no text."""
    with suppress(pl.exceptions.ComputeError):  # one of them is not UTF-8
        return series(values).cast(pl.String), {}
    found = [_decoded(value) for value in values]
    wrong = [i for i, text in enumerate(found) if text is None and values[i] is not None]
    return pl.Series(found, dtype=pl.String), dict.fromkeys(wrong, "it is not UTF-8")


def _decoded(value: bytes | None) -> str | None:
    with suppress(UnicodeDecodeError):
        return None if value is None else value.decode()
    return None


def series(values: Bytes) -> pl.Series:
    """Return values as a column of bytes."""
    column = pl.from_arrow(pa.array(values, pa.large_binary()))
    assert isinstance(column, pl.Series)
    return column


def shown(value: bytes | None, key: bytes | None = None) -> dict[str, Any]:
    """Write a record so that it can be repaired: each part as text if it is one, else in base64; a key only if there is one.

    >>> shown(b"\\xff", b"k")
    {'key': 'k', 'value_base64': '/w=='}
    """
    return (_part("key", key) if key is not None else {}) | _part("value", value)


def _part(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def _raw(values: Bytes, name: str) -> Parsed:
    return Parsed(series(values).alias(name).to_frame(), others(len(values), ()), {})


def _text(values: Bytes, name: str) -> Parsed:
    text, wrong = text_column(values)
    good = others(len(values), wrong)
    rows = (text.gather(good) if wrong else text).alias(name).to_frame()
    return Parsed(rows, good, wrong)


def _lines(values: Bytes) -> tuple[bytes, pl.Series, dict[int, str]]:
    """Return values as lines, joined and one by one, and the reason for each that is none."""
    lines, wrong = text_column(values)
    if lines.null_count():
        wrong |= dict.fromkeys((series(values).is_null()).arg_true(), TOMBSTONE)
        lines = lines.fill_null("")
        return b"", lines, wrong
    return b"\n".join(values), lines, wrong  # type: ignore[arg-type]  # none of them is None


def _plain_objects(values: Bytes) -> bytes | None:
    """Return values as lines, joined, if each is a line of text that begins and ends as an object does: mostly they are, and it is quickly seen."""
    if not values or None in values:
        return None
    data = b"\n".join(values)  # type: ignore[arg-type]  # none of them is None
    if not (data.startswith(b"{") and data.endswith(b"}")) or b"\r" in data:
        return None
    codes = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(codes == ord("\n"))
    if breaks.size != len(values) - 1:
        return None
    if not ((codes[breaks - 1] == ord("}")).all() and (codes[breaks + 1] == ord("{")).all()):
        return None
    with suppress(UnicodeDecodeError):
        return data if data.isascii() or data.decode() else None
    return None


def _json(values: Bytes, reader: ObjectReader, columns: pl.Schema) -> Parsed:
    if (data := _plain_objects(values)) is not None and (found := reader.whole(data, len(values))) is not None:
        rows, fits, reasons = typed(found, columns)
        return Parsed(rows, fits, reasons)
    data, lines, wrong = _lines(values)
    broken = lines.str.contains(r"[\r\n]").arg_true()
    if (
        broken.len()
    ):  # a line break between the parts of an object is as good as a space; inside a text it is none of JSON
        wrong = {i: why for i in broken if (why := reader.fault(lines[i]))} | wrong
        lines = lines.scatter(broken, lines.gather(broken).str.replace_all(r"[\r\n]", " "))
        data = b""
    if not wrong and not data:
        data = "\n".join(lines).encode()
    found, numbers, wrong = reader.read(data, lines, wrong)
    rows, fits, reasons = typed(found, columns)
    wrong |= {numbers[i]: reason for i, reason in reasons.items()}
    return Parsed(rows, numbers.gather(fits) if reasons else numbers, wrong)


def _csv(values: Bytes, columns: pl.Schema, separator: str) -> Parsed:
    _, lines, wrong = _lines(values)
    lines = lines.str.replace(r"\r?\n$", "")
    broken = lines.str.contains(r"[\r\n]").arg_true()
    if broken.len():  # a line break inside quotes is part of a field: here a record's end is known without it
        bare = lines.gather(broken).str.replace_all(r'"(?:[^"]|"")*"', "")
        wrong |= dict.fromkeys(broken.filter(bare.str.contains(r"[\r\n]")), "the value has more than one line")
    rows, numbers, faults = read_fields(lines, list(columns), wrong, columns, separator)
    return Parsed(rows, numbers, {i: why for i, (why, _) in faults.items()})
