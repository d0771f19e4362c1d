"""Newline-delimited JSON: one object per line, the schema declared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
from pyarrow.json import ParseOptions, ReadOptions, read_json

from springtide.kernels.slices import Read, Slice
from springtide.query.errors import nearest
from springtide.query.types import instance, schema_from, type_text
from springtide.runtime.reference.fit import Misfit, column
from springtide.sources.files import cut, judged, path_text
from springtide.sources.lines import LineSource, raw
from springtide.sources.texts import check_types, is_text_type, others, typed

_BLOCK = 4096
"""As many lines are read at once where some are wrong."""
_PATIENCE = 16
"""After as many failures in a block its lines are looked at one by one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Json(LineSource):
    """The JSON files of a folder or pattern."""

    kind: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")

    def read(self, part: Slice) -> Read:
        """Read the lines, all at once if nothing is wrong with them."""
        data, lines, faults = self.load(part)
        bare = lines.str.strip_chars(" \t")
        plain = bare.str.starts_with("{") & bare.str.ends_with("}")
        faults = {i: self._fault(lines[i], "it is no object") for i in (~plain).arg_true()} | faults
        numbers, parser = others(lines.len(), faults), _Parser(self.columns)
        try:
            if faults:
                raise pa.ArrowInvalid("some lines cannot be read")
            found = parser.parse(data, lines.len())
        except pa.ArrowInvalid:
            found, numbers, more = self._sift(parser, lines, numbers.to_list())
            faults |= more
        rows, fits, reasons = typed(found, self.columns)
        faults |= {numbers[i]: reason for i, reason in reasons.items()}
        return judged(part, rows, numbers.gather(fits), {i: (why, _row(lines[i])) for i, why in faults.items()})

    def _sift(
        self, parser: _Parser, lines: pl.Series, numbers: list[int]
    ) -> tuple[pl.DataFrame, pl.Series, dict[int, str]]:
        """Part the lines that can be read from those that cannot, with as few readings as may be."""
        frames, read, faults = [parser.nothing()], [], {}
        for start in range(0, len(numbers), _BLOCK):
            todo, failures = [numbers[start : start + _BLOCK]], 0
            while todo:
                some = todo.pop()
                try:
                    frames.append(parser.parse("\n".join(lines.gather(some)).encode(), len(some)))
                    read += some
                    continue
                except pa.ArrowInvalid as error:
                    problem, failures = str(error), failures + 1
                if len(some) == 1:
                    faults[some[0]] = self._fault(lines[some[0]], problem)
                elif failures > _PATIENCE and (plain := {i: why for i in some if (why := self._plain_fault(lines[i]))}):
                    faults |= plain
                    todo.append([i for i in some if i not in plain])
                else:
                    todo += _split(some, problem)
        order = pl.Series(read, dtype=pl.Int64).arg_sort()
        return pl.concat(frames)[order], pl.Series(read, dtype=pl.Int64).gather(order), faults

    def _fault(self, line: str, problem: str) -> str:
        problem = re.sub(r"^JSON parse error: | in row \d+$", "", problem)
        return self._plain_fault(line) or f"the line cannot be read: {problem}"

    def _plain_fault(self, line: str) -> str | None:
        """Say what is wrong with a line, as far as Python can tell."""
        try:
            row = loads(line)
        except JSONDecodeError as error:
            return f"the line is not JSON: {error.msg} at character {error.pos + 1}" if line else "the line is empty"
        except RecursionError:
            return "the line is not JSON that can be read: it is nested too deeply"
        if not isinstance(row, dict):
            return f"{cut(row)} is not a row of named columns"
        for name in row:
            if name not in self.columns:
                return f"there is no column {name!r}; {nearest(name, self.columns)}"
        for name, dtype in self.columns.items():
            try:
                _check(name, row.get(name), dtype)
            except Misfit as misfit:
                return str(misfit)
        return None


def json(path: str | Path, *, schema: Mapping[str, Any], follow: bool = False) -> Json:
    """Read the newline-delimited JSON files of a folder (or a file, or a pattern), in the order of their names.

    Each line is an object with a row's columns by name; a column that is not there is null. Times are ISO 8601 texts, decimals are numbers
    or texts. The input ends with the last file; with `follow` the query waits for more lines in it and for new files, whose names must sort
    after those before.

    A line that is not an object, has a column that the schema does not have, or a value that is not of its column's type, is at
    the stream's `rejected`.

    >>> st.json("clicks/*.jsonl", schema={"page": pl.String, "ts": st.TIME}).describe()
    'json clicks/*.jsonl'
    """
    columns = schema_from("(json)", "schema", schema)
    check_types("(json)", columns, nested=True)
    return Json(path=path_text("json", path), follow=follow, columns=columns)


class _Parser:
    """Reads lines as columns, strictly; what is wrong comes as `pa.ArrowInvalid`."""

    def __init__(self, columns: pl.Schema) -> None:
        self._columns = pl.Schema({n: pl.String() if is_text_type(t) else t for n, t in columns.items()})
        explicit = pa.schema({n: _arrow_type(t) for n, t in self._columns.items()})
        self._options = ParseOptions(explicit_schema=explicit, unexpected_field_behavior="error")

    def nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self._columns)

    def parse(self, data: bytes, rows: int) -> pl.DataFrame:
        if not rows:
            return self.nothing()
        one_block = ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = read_json(pa.BufferReader(data), read_options=one_block, parse_options=self._options)
        if table.num_rows != rows:  # lines are objects, so some has more than one
            raise pa.ArrowInvalid("it has more than one object")
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame.cast(self._columns) if frame.schema != self._columns else frame


def _split(numbers: list[int], problem: str) -> Iterator[list[int]]:
    """Cut around the line that the problem names, or in the middle."""
    named = re.search(r"in row (\d+)$", problem)
    at = int(named[1]) if named and int(named[1]) < len(numbers) else None
    middle = len(numbers) // 2
    parts = (
        (numbers[:middle], numbers[middle:]) if at is None else (numbers[:at], numbers[at : at + 1], numbers[at + 1 :])
    )
    return (part for part in parts if part)


def _row(line: str) -> Mapping[str, Any]:
    """Give the row in a line, or the line itself if there is none."""
    try:
        row = loads(line)
    except (ValueError, RecursionError):
        return raw(line)
    return row if isinstance(row, dict) else raw(line)


def _check(name: str, value: Any, dtype: pl.DataType) -> None:
    """Raise `Misfit` for a value that is not of its column's type. What is written as text is read later."""
    if isinstance(dtype, pl.Decimal):
        with suppress(InvalidOperation, Misfit):
            column(name, None if value is None else Decimal(str(value)), dtype)
            return
    elif not is_text_type(dtype):
        column(name, value, dtype)
        return
    elif value is None or isinstance(value, str):
        return
    raise Misfit(f"column {name!r}: {cut(value)} is not {type_text(dtype)}")


def _arrow_type(dtype: pl.DataType) -> pa.DataType:
    if isinstance(dtype, pl.List):
        return pa.list_(_arrow_type(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pa.struct({f.name: _arrow_type(instance(f.dtype)) for f in dtype.fields})
    if isinstance(dtype, pl.Decimal):
        return pa.decimal128(dtype.precision, dtype.scale)
    if dtype == pl.String:
        return pa.large_string()
    return pl.Series(dtype=dtype).to_arrow().type
