"""Sums in partial results: which columns hold one, how they are made from tuples, and how a value is computed from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from springtide.operators.aggregates import digits
from springtide.operators.aggregates.digits import AT, BITS, DIGIT, MASK, PLACES, REST, SQUARE_PLACES, Digits
from springtide.query.aggregates import BoundAggregate, overflow_text

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_SHORT = 18
"""Decimals with up to this many digits fit into 64 bits."""
_EXACT_POWER = 22
"""Powers of ten up to this one are exact as floats."""
_LONGEST = 10**38
"""Decimals have fewer than this many units."""


@dataclass(frozen=True)
class ExactSum:
    """One sum: a column for each digit, and for floats one more for the rest."""

    prefix: str
    places: tuple[int, ...]
    """From the highest to the lowest."""
    input: pl.Expr
    split: Callable[[np.ndarray], Digits] | None = None
    """Splits floats into digits; digits of integers are computed by expressions."""

    @property
    def columns(self) -> dict[int, str]:
        """The column of each place."""
        return {place: f"{self.prefix}{place}" for place in self.places}

    @property
    def rest(self) -> str:
        """The column for digits elsewhere."""
        return f"{self.prefix}~"

    @property
    def all_columns(self) -> list[str]:
        """All of its columns."""
        return [*self.columns.values(), *([self.rest] if self.split else [])]

    def digit(self, place: int) -> pl.Expr:
        """Compute a digit of integers; the highest one has the sign."""
        if len(self.places) == 1:
            return self.input.cast(pl.Int64)
        above = self.input // 2 ** (BITS * place) if place else self.input
        return (above if place == self.places[0] else above & MASK).cast(pl.Int64)

    def series(self, parts: Sequence[Mapping[int, np.ndarray]], height: int) -> list[pl.Series]:
        """Return the columns of the sum of several numbers, row by row, given the digits of each."""
        none = np.zeros(height, dtype=np.int64)
        return [pl.Series(c, sum((p[place] for p in parts if place in p), none)) for place, c in self.columns.items()]

    def fields(self) -> pl.Expr:
        """Return all columns as one, from which a value can be computed."""
        return pl.struct(self.all_columns)


def sum_of(prefix: str, aggregate: BoundAggregate, x: pl.Expr) -> ExactSum:
    """Return how a column is added up."""
    dtype = aggregate.input_type
    assert dtype is not None
    if dtype.is_float():
        return ExactSum(prefix, PLACES, x.cast(pl.Float64), digits.split)
    if isinstance(dtype, pl.Decimal):
        units = x.to_physical()
        short = (dtype.precision or 38) <= _SHORT
        return ExactSum(prefix, (1, 0), units.cast(pl.Int64)) if short else ExactSum(prefix, (3, 2, 1, 0), units)
    if dtype in (pl.Int64, pl.UInt64) or isinstance(dtype, pl.Duration):
        return ExactSum(prefix, (1, 0), x.to_physical() if dtype.is_temporal() else x)
    if dtype in (pl.Int128, pl.UInt128):
        return ExactSum(prefix, (3, 2, 1, 0), x)
    return ExactSum(prefix, (0,), x)


def squares_of(prefix: str, x: pl.Expr) -> ExactSum:
    """Return how the squares of floats are added up."""
    return ExactSum(prefix, SQUARE_PLACES, x, digits.split_squares)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────


def total(of: ExactSum, aggregate: BoundAggregate) -> pl.Expr:
    """Return the sum in the aggregate's own type; if it does not fit, `reason` says so."""
    dtype, cols = aggregate.output_type, {p: pl.col(c) for p, c in of.columns.items()}
    if of.split is not None:
        return _mapped(of, pl.Float64(), lambda f: pl.Series(floats(of, f)))
    if isinstance(dtype, pl.Decimal):
        scale = dtype.scale
        return _mapped(of, dtype, lambda f: _decimals(of, f, scale))
    value = cols[0] if len(of.places) == 1 else cols[1] * 2**BITS + cols[0]
    return value.cast(dtype, wrap_numerical=True)


def reason(of: ExactSum, aggregate: BoundAggregate) -> pl.Expr | None:
    """Return why a sum cannot be returned, null where it can; None if it always can."""
    dtype = aggregate.output_type
    if of.split is not None or len(of.places) == 1:
        return None
    scale = dtype.scale if isinstance(dtype, pl.Decimal) else 0
    if isinstance(dtype, pl.Decimal):
        least, greatest = 1 - _LONGEST, _LONGEST - 1
    else:
        least, greatest = (0, 2**64 - 1) if dtype.is_unsigned_integer() else (_LEAST, _GREATEST)

    def reasons(frame: pl.DataFrame) -> pl.Series:
        found = np.flatnonzero(~_surely(of, frame, least, greatest))
        texts: list[str | None] = [None] * frame.height if found.size else []
        rows = frame[found]
        for row, units in zip(found.tolist(), digits.whole_numbers(_arrays(of, rows), 0, rows.height), strict=True):
            if not least <= units <= greatest:
                texts[row] = overflow_text(aggregate, _scaled(units, scale))
        return (
            pl.Series(texts, dtype=pl.String) if texts else pl.repeat(None, frame.height, dtype=pl.String, eager=True)
        )

    return _mapped(of, pl.String(), reasons)


def bounded(of: ExactSum) -> pl.Expr:
    """Return the sum of integers, limited to the range of 64-bit integers."""
    high, low = pl.col(of.columns[of.places[0]]), pl.col(of.columns[0])
    if len(of.places) == 1:
        return low
    over = high + low // 2**BITS
    return (
        pl.when(over.is_between(-(2**31), 2**31 - 1))
        .then(high * 2**BITS + low)
        .when(over < 0)
        .then(pl.lit(_LEAST, dtype=pl.Int64))
        .otherwise(pl.lit(_GREATEST, dtype=pl.Int64))
    )


def mean(of: ExactSum, count: str, aggregate: BoundAggregate) -> pl.Expr:
    """Return the sum, rounded to a float, divided by the count; for durations the whole number of units, truncated towards zero."""
    dtype, given = aggregate.output_type, aggregate.input_type
    scale = given.scale if isinstance(given, pl.Decimal) else None

    def values(frame: pl.DataFrame) -> pl.Series:
        counts = frame[count].to_numpy()
        if isinstance(dtype, pl.Duration):
            return _where(counts > 0, pl.Series(_cut(of, frame, counts)).cast(dtype))
        sums = floats(of, frame) if scale is None else _decimals_as_floats(of, frame, scale)
        return _where(counts > 0, pl.Series(sums / np.maximum(counts, 1)))

    return _of(pl.struct([*of.all_columns, count]), dtype, values)


def spread(sums: ExactSum, squares: ExactSum, count: str, *, root: bool) -> pl.Expr:
    """Return the sample variance, (n·Σx² − (Σx)²) / n(n − 1), rounded once; or its square root."""

    def values(frame: pl.DataFrame) -> pl.Series:
        lowest = sums.places[-1]
        assert squares.places[-1] == 2 * lowest
        counts = frame[count].to_list()
        firsts = digits.whole_numbers(_arrays(sums, frame), lowest, frame.height)
        seconds = digits.whole_numbers(_arrays(squares, frame), 2 * lowest, frame.height)
        unit = -2 * BITS * lowest
        found = [
            0.0 if m < 2 else _quotient(m * q - s * s, m * (m - 1) << unit)
            for m, s, q in zip(counts, firsts, seconds, strict=True)
        ]
        for row in _rows_with_rest(frame, sums.rest, squares.rest):
            m, scale = counts[row], Fraction(2) ** (BITS * lowest)
            s = digits.with_rest(firsts[row] * scale, _rest(frame, sums.rest, row))
            q = digits.with_rest(seconds[row] * scale**2, _rest(frame, squares.rest, row))
            both = isinstance(s, Fraction) and isinstance(q, Fraction)
            found[row] = digits.as_float((m * q - s * s) / (m * (m - 1))) if both and m > 1 else float("nan")
        result = np.array(found, dtype=np.float64)
        return _where(frame[count].to_numpy() > 1, pl.Series(np.sqrt(result) if root else result))

    return _of(pl.struct([*sums.all_columns, *squares.all_columns, count]), pl.Float64(), values)


def floats(of: ExactSum, frame: pl.DataFrame) -> np.ndarray:
    """Round sums to floats, each once."""
    arrays = _arrays(of, frame)
    if set(arrays) == {0}:
        return np.asarray(arrays[0], dtype=np.float64)
    if set(arrays) == {1, 0} and _surely(of, frame, _LEAST, _GREATEST).all():
        return np.asarray((arrays[1] << BITS) + arrays[0], dtype=np.float64)
    result = digits.rounded(arrays, frame.height)
    if of.split is not None:
        for row in _rows_with_rest(frame, of.rest):
            exact = sum((int(a[row]) * Fraction(2) ** (BITS * p) for p, a in arrays.items()), Fraction(0))
            result[row] = digits.as_float(digits.with_rest(exact, _rest(frame, of.rest, row)))
    return result


def integers(of: ExactSum, frame: pl.DataFrame) -> list[int]:
    """Return sums of integers exactly."""
    return digits.whole_numbers(_arrays(of, frame), 0, frame.height)


def _arrays(of: ExactSum, frame: pl.DataFrame) -> dict[int, np.ndarray]:
    return {p: frame[c].to_numpy() for p, c in of.columns.items()}


def _surely(of: ExactSum, frame: pl.DataFrame, least: int, greatest: int) -> np.ndarray:
    """Return which sums certainly fit between two numbers; some of the others may fit too."""
    high, low = frame[of.columns[of.places[0]]].to_numpy(), frame[of.columns[of.places[1]]].to_numpy()
    unit = BITS * of.places[0]
    over = high + (low >> BITS)  # the lower digits add less than two, in either direction
    if len(of.places) == 2:
        return np.asarray((over >= least >> unit) & (over <= greatest >> unit))
    return np.asarray((over >= (least >> unit) + 2) & (over <= (greatest >> unit) - 2))


def _cut(of: ExactSum, frame: pl.DataFrame, counts: np.ndarray) -> np.ndarray:
    many = np.maximum(counts, 1)
    if _surely(of, frame, _LEAST + 1, _GREATEST).all():
        arrays = _arrays(of, frame)
        sums = (arrays[1] << BITS) + arrays[0]
        if sums.size and sums.min() > _LEAST:
            cut: np.ndarray = np.sign(sums) * (np.abs(sums) // many)
            return cut
    whole = [abs(s) // n * (1 if s > 0 else -1) for s, n in zip(integers(of, frame), many.tolist(), strict=True)]
    return np.array(whole, dtype=np.int64)


def _decimals(of: ExactSum, frame: pl.DataFrame, scale: int) -> pl.Series:
    """Put 128-bit decimals together from their digits."""
    arrays = _arrays(of, frame)
    words = np.zeros((frame.height, 2), dtype=np.uint64)
    rows = digits.carried(np.stack([arrays[p] for p in reversed(of.places)]))
    if len(of.places) == 2:
        rows = np.stack([rows[0], rows[1], rows[2] & MASK, (rows[2] >> BITS) & MASK])
    parts = rows.astype(np.uint64)
    words[:, 0] = parts[0] | parts[1] << np.uint64(BITS)
    words[:, 1] = parts[2] | parts[3] << np.uint64(BITS)
    kind = pa.decimal128(38, scale)
    return pl.Series(pa.Array.from_buffers(kind, frame.height, [None, pa.py_buffer(words.tobytes())]))


def _decimals_as_floats(of: ExactSum, frame: pl.DataFrame, scale: int) -> np.ndarray:
    units = integers(of, frame)
    if scale <= _EXACT_POWER and all(-(2**53) < u < 2**53 for u in units):  # then a single division rounds only once
        return np.array(units, dtype=np.float64) / 10.0**scale
    return np.array([float(_scaled(u, scale)) for u in units], dtype=np.float64)


def _scaled(units: int, scale: int) -> int | Decimal:
    with localcontext(prec=200):
        return Decimal(units).scaleb(-scale) if scale else units


def _quotient(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf")


def _rows_with_rest(frame: pl.DataFrame, *columns: str) -> list[int]:
    some = [c for c in columns if frame[c].null_count() < frame.height]
    if not some:
        return []
    return frame.select(pl.any_horizontal(pl.col(c).is_not_null() for c in some).arg_true()).to_series().to_list()


def _rest(frame: pl.DataFrame, column: str, row: int) -> list[dict[str, int]]:
    found = frame[column][row]
    return [] if found is None else found.to_list()


def _where(known: np.ndarray, values: pl.Series) -> pl.Series:
    """Leave out values that are not known."""
    if known.all():
        return values
    return pl.DataFrame([values.alias("v"), pl.Series("k", known)]).select(pl.when("k").then("v")).to_series()


def _mapped(of: ExactSum, dtype: pl.DataType, values: Callable[[pl.DataFrame], pl.Series]) -> pl.Expr:
    return _of(of.fields(), dtype, values)


def _of(fields: pl.Expr, dtype: pl.DataType, values: Callable[[pl.DataFrame], pl.Series]) -> pl.Expr:
    def mapped(series: pl.Series) -> pl.Series:
        return values(series.struct.unnest())

    return fields.map_batches(mapped, return_dtype=dtype, is_elementwise=True)


# ── the rest, where there is one ──────────────────────────────────────────────────────────────────────────────────


def gathered(parts: pl.DataFrame, groups: Sequence[str], column: str) -> pl.DataFrame:
    """Put digits, each with its place, into one list per group; places whose digits cancel out are left out."""
    sums = parts.lazy().group_by([*groups, AT]).agg(pl.col(DIGIT).sum()).filter(pl.col(DIGIT) != 0).sort(AT)
    return sums.group_by(groups, maintain_order=True).agg(pl.struct(AT, DIGIT).alias(column)).collect()


def spread_out(rows: pl.DataFrame, column: str) -> dict[str, np.ndarray]:
    """Return the digits of a rest as one column for each place that any row has, named `<column>@<place>`."""
    if rows[column].null_count() == rows.height:
        return {}
    long = rows.select(column).with_row_index("row").drop_nulls().explode(column).unnest(column)
    found = {}
    for (at,), part in long.group_by([AT]):
        values = np.zeros(rows.height, dtype=np.int64)
        values[part["row"].to_numpy()] = part[DIGIT].to_numpy()
        found[f"{column}@{at}"] = values
    return found


def taken_in(column: str, found: dict[str, pl.Series], height: int) -> pl.Series:
    """Undo `spread_out`."""
    if not found:
        return pl.repeat(None, height, dtype=REST, eager=True).alias(column)
    frame = pl.DataFrame([s.alias(n) for n, s in found.items()])
    entries: list[Any] = [
        pl.when(pl.col(n) != 0).then(
            pl.struct(pl.lit(int(n.rpartition("@")[2]), dtype=pl.Int16).alias(AT), pl.col(n).alias(DIGIT))
        )
        for n in sorted(found, key=lambda n: int(n.rpartition("@")[2]))
    ]
    lists = frame.select(pl.concat_list(entries).list.drop_nulls().alias(column))
    return lists.select(pl.when(pl.col(column).list.len() > 0).then(pl.col(column)).cast(REST)).to_series()


def shown_sums(columns: Sequence[str]) -> dict[str, tuple[list[str], pl.Expr]]:
    """Find sums among partial columns: name → its columns and its value, for display; decimals are in units of their last place."""
    found: dict[str, list[int]] = {}
    for column in columns:
        match = re.fullmatch(r"(\d+\.[sq])(-?\d+)", column)
        if match:
            found.setdefault(match[1], []).append(int(match[2]))
    sums: dict[str, tuple[list[str], pl.Expr]] = {}
    for prefix, places in found.items():
        one = ExactSum(prefix, tuple(sorted(places, reverse=True)), pl.lit(0))
        if f"{prefix}~" in columns:
            one = replace(one, split=digits.split)
        sums[prefix] = one.all_columns, _shown(one)
    return sums


def _shown(of: ExactSum) -> pl.Expr:
    if len(of.places) == 1:
        return pl.col(of.columns[0])
    if of.places == (1, 0):
        value: pl.Expr = pl.col(of.columns[1]) * 2**BITS + pl.col(of.columns[0])
        return value
    return _mapped(of, pl.Float64(), lambda frame: pl.Series(floats(of, frame)))


# ── partial results of older versions ─────────────────────────────────────────────────────────────────────────────


def from_column(of: ExactSum, rows: pl.DataFrame) -> list[pl.Series]:
    """Return the columns of a sum that used to be a single column with the name of the sum."""
    if of.split is not None:
        return _of_floats(of, [rows[of.prefix].to_numpy()])
    old = ExactSum(of.prefix, of.places, pl.col(of.prefix).to_physical())
    return rows.select([old.digit(p).alias(c) for p, c in old.columns.items()]).get_columns()


def from_spread(of: ExactSum, rows: pl.DataFrame, count: str, mean: str) -> list[pl.Series]:
    """Return the columns of a sum, or of a sum of squares, given a count, a mean and a sum of squared distances."""
    n, m = rows[count].to_numpy().astype(np.float64), rows[mean].to_numpy()
    total = digits.product(n, m)
    if of.split is not digits.split_squares:
        return _of_floats(of, total)
    squares = rows[of.prefix].to_numpy()
    return _of_floats(of, [squares, *(part for t in total for part in digits.product(t, m))])


def _of_floats(of: ExactSum, parts: Sequence[np.ndarray]) -> list[pl.Series]:
    """Return the columns of the sums of some floats, row by row."""
    height = parts[0].size
    found = [digits.split(p, of.places) for p in parts]
    columns = of.series([d.dense for d in found], height)
    rests = [d.rest for d in found if d.rest is not None]
    if not rests:
        return [*columns, taken_in(of.rest, {}, height)]
    rest = gathered(pl.concat(rests), ["row"], of.rest)
    rows = pl.DataFrame({"row": np.arange(height)}).join(rest, on="row", how="left", maintain_order="left")
    return [*columns, rows[of.rest]]
