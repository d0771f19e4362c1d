"""JSON objects, one per line, read as columns; and the lines that cannot be read, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from json import JSONDecodeError, dumps, loads
from typing import Any

import polars as pl
import pyarrow as pa
from pyarrow.json import ParseOptions, ReadOptions, read_json

from springtide.query.errors import nearest
from springtide.query.types import instance, type_text
from springtide.sources.line_files import raw
from springtide.sources.text_columns import is_text_type, others
from springtide.values.row_checks import Misfit, brief, column

_BLOCKS = (1 << 16, 1 << 10)
"""Once some lines are wrong, this many are read at once; if that fails, the next smaller number."""
_DIGITS = 38
"""The most digits that a number can have and still be read exactly: those of a decimal. The largest floats have more."""


class ObjectReader:
    """Reads lines as columns, strictly: whether a line fits does not depend on the other lines."""

    def __init__(self, columns: pl.Schema) -> None:
        """Prepare for these columns. Those that are always written as text are read as text."""
        self._columns = columns
        self._read = pl.Schema({n: _as_read(t) for n, t in columns.items()})
        self._decimals = {
            n: pa.decimal128(t.precision, t.scale) for n, t in columns.items() if isinstance(t, pl.Decimal)
        }
        explicit = pa.schema({n: _arrow_type(t) for n, t in self._read.items()})
        self._options = ParseOptions(explicit_schema=explicit, unexpected_field_behavior="error")
        self._tests = {n: _test(t) for n, t in columns.items()}

    def read(
        self, data: bytes, lines: pl.Series, faults: Mapping[int, str]
    ) -> tuple[pl.DataFrame, pl.Series, dict[int, str]]:
        """Read the lines of `data`, except those with known faults; return the rows, their numbers, and all faults by number."""
        bare = lines.str.strip_chars(" \t")
        other = ~(bare.str.starts_with("{") & bare.str.ends_with("}"))
        found = {i: self.fault(lines[i]) or "the line is not an object" for i in other.arg_true()} | dict(faults)
        if not found:
            with suppress(pa.ArrowInvalid):
                return self._parse(data, lines.len()), others(lines.len(), ()), {}
        return self._sift(lines.to_list(), others(lines.len(), found).to_list(), found)

    def whole(self, data: bytes, rows: int) -> pl.DataFrame | None:
        """Read lines that begin and end like objects, all at once; None if one of them cannot be read."""
        with suppress(pa.ArrowInvalid):
            return self._parse(data, rows)
        return None

    def fault(self, line: str) -> str | None:
        """Return what is wrong with a line, as far as Python can tell. A line in which it finds a fault can never be read."""
        try:
            row = loads(line, object_pairs_hook=_unique, parse_int=_number)
            if "\\u" in line:
                dumps(row, ensure_ascii=False).encode()
        except JSONDecodeError as error:
            return f"the line is not JSON: {error.msg} at character {error.pos + 1}" if line else "the line is empty"
        except RecursionError:
            return "the line is not JSON that can be read: it is nested too deeply"
        except UnicodeEncodeError:
            return "the line is not JSON that can be read: it has half of a surrogate pair"
        except Misfit as misfit:
            return str(misfit)
        if not isinstance(row, dict):
            return f"{brief(row)} is not a row of named columns"
        for name in row:
            if name not in self._columns:
                return f"there is no column {name!r}; {nearest(name, self._columns)}"
        exact = loads(line, parse_int=_decimal, parse_float=_decimal) if self._decimals else {}
        for name, fits in self._tests.items():
            value = row.get(name)
            if value is not None and not fits(exact[name] if name in self._decimals else value):
                return _misfit(name, value, self._columns[name])
        return None

    def _sift(
        self, lines: list[str], numbers: list[int], faults: dict[int, str]
    ) -> tuple[pl.DataFrame, pl.Series, dict[int, str]]:
        """Read block by block, in smaller blocks where something is wrong, and look at single lines only there.

        Reading a block costs as much as looking at a hundred single lines.
        """
        frames: list[pl.DataFrame] = [pl.DataFrame(schema=self._read)]
        done: list[int] = []

        def attempt(some: list[int]) -> str | None:
            try:
                frames.append(self._parse("\n".join([lines[i] for i in some]).encode(), len(some)))
            except pa.ArrowInvalid as error:
                return str(error)
            done.extend(some)
            return None

        large, small = _BLOCKS
        for block in _blocks(numbers, large):
            for few in _blocks(block, small) if attempt(block) else ():
                if attempt(few):
                    faults |= {i: fault for i in few if (fault := self.fault(lines[i]))}
                    rest = [i for i in few if i not in faults]
                    for i in rest if attempt(rest) else ():
                        if problem := attempt([i]):
                            faults[i] = f"the line cannot be read: {problem}"
        return pl.concat(frames), pl.Series(done, dtype=pl.Int64), faults

    def _parse(self, data: bytes, rows: int) -> pl.DataFrame:
        if not rows:
            return pl.DataFrame(schema=self._read)
        one_block = ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = read_json(pa.BufferReader(data), read_options=one_block, parse_options=self._options)
        if table.num_rows != rows:  # every line begins and ends like an object, so some lines have more than one
            raise pa.ArrowInvalid("it has more than one object")
        for name, dtype in self._decimals.items():
            table = table.set_column(table.column_names.index(name), name, table[name].cast(dtype))
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame.cast(self._read) if frame.schema != self._read else frame


def row_of(line: str) -> Mapping[str, Any]:
    """Return the row in a line, or the line itself if there is none."""
    try:
        row = loads(line)
    except (ValueError, RecursionError):
        return raw(line)
    return row if isinstance(row, dict) else raw(line)


def _number(digits: str) -> float:
    """Read a number without a decimal point. One that is too long for any integer or decimal is a float, as in Arrow; Python refuses thousands of digits."""
    return int(digits) if len(digits.removeprefix("-")) <= _DIGITS else float(digits)


def _decimal(digits: str) -> Decimal | float:
    """Read a number to its last digit; one whose exponent is too long for that cannot fit any column."""
    try:
        return Decimal(digits)
    except InvalidOperation:
        return float(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise Misfit(f"the line has {next(n for n in names if names.count(n) > 1)!r} twice")
    return row


def _blocks(numbers: list[int], size: int) -> Iterator[list[int]]:
    return (numbers[i : i + size] for i in range(0, len(numbers), size))


def _test(dtype: pl.DataType) -> Callable[[Any], bool]:
    """Return a quick test of whether a JSON value is of a type. What is written as text is converted later."""
    if dtype == pl.String or is_text_type(dtype):
        return lambda value: type(value) is str
    if dtype == pl.Boolean:
        return lambda value: type(value) is bool
    if dtype.is_float():
        return lambda value: type(value) in (int, float)
    if dtype.is_integer():
        extremes: Any = dtype  # Polars does not say that integers have them
        low, high = pl.select(low=extremes.min(), high=extremes.max()).row(0)
        return lambda value: type(value) is int and low <= value <= high
    return lambda value: not isinstance(_tried("", value, dtype), Misfit)


def _misfit(name: str, value: Any, dtype: pl.DataType) -> str:
    tried = None if is_text_type(dtype) or isinstance(dtype, pl.Decimal) else _tried(name, value, dtype)
    return str(tried) if isinstance(tried, Misfit) else f"column {name!r}: {brief(value)} is not {type_text(dtype)}"


def _tried(name: str, value: Any, dtype: pl.DataType) -> pl.Series | Misfit:
    try:
        if isinstance(dtype, pl.Decimal):
            value = Decimal(str(value))
        return column(name, value, dtype)
    except InvalidOperation:
        return Misfit()
    except Misfit as misfit:
        return misfit


def _as_read(dtype: pl.DataType) -> pl.DataType:
    """Return the type under which a column is read, before it is converted."""
    return pl.String() if is_text_type(dtype) else dtype


def _arrow_type(dtype: pl.DataType) -> pa.DataType:
    if isinstance(dtype, pl.List):
        return pa.list_(_arrow_type(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pa.struct({f.name: _arrow_type(instance(f.dtype)) for f in dtype.fields})
    if isinstance(dtype, pl.Decimal):  # with half the bits, Arrow does not notice that a number is too large
        return pa.decimal256(76, dtype.scale)
    if dtype == pl.String:
        return pa.large_string()
    return pl.Series(dtype=dtype).to_arrow().type
