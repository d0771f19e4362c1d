"""Calls into a user's operator: what it raises and what it returns is checked, and told with the step's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import polars as pl

from springtide.query.errors import UserCodeError, nearest
from springtide.query.operators import BucketOperator, UserOperator
from springtide.query.types import TS, type_text
from springtide.runtime.reference.evaluate import row_of
from springtide.sources.fit import Misfit, column, micros_of, time_column

Given = tuple[int, pl.DataFrame]
"""An output row with its ts."""


class Caller:
    """Calls the methods of one step's operator."""

    def __init__(self, label: str, operator: UserOperator, schema: pl.Schema) -> None:
        """Keep what the messages and the checks need."""
        self._label, self._operator, self._schema = label, operator, schema

    def run(self, method: str, *args: Any, cause: pl.DataFrame | None = None) -> Any:
        """Call a method; an exception becomes an error that names the step and the row."""
        try:
            return getattr(self._operator, method)(*args)
        except Exception as error:
            problem = f"{self._who(method)} raised {type(error).__name__}: {error}"
            hint = "correct the operator, or filter such rows out before"
            raise UserCodeError(self._label, problem, hint, None if cause is None else row_of(cause)) from error

    def rows(self, method: str, *args: Any, earliest: int, cause: pl.DataFrame | None = None) -> Iterator[Given]:
        """Call a method that gives output rows; none may be before `earliest`, the time of what caused them."""
        result = self.run(method, *args, cause=cause)
        if isinstance(self._operator, BucketOperator):
            given = self._of_frame(method, result)
        else:
            given = self._of_mappings(method, result)
        for ts, row in given:
            if ts < earliest:
                problem = f"{self._who(method)} gave a row at ts {ts}, before what caused it at {earliest}"
                raise self.wrong(
                    problem, "let an output row carry the ts of the tuple that caused it, or a later one", row_of(row)
                )
            yield ts, row

    def state(self, method: str, state: Any, schema: pl.Schema) -> dict[str, Any]:
        """Check the state of one key."""
        if not isinstance(state, dict) or set(state) != set(schema):
            problem = f"{self._who(method)} left the state {state!r}, but its columns are {', '.join(schema)}"
            raise self.wrong(problem, "keep exactly the columns that the operator declares", None)
        for name, dtype in schema.items():
            self._fitting(name, state[name], dtype, f"{self._who(method)} left the state with", state)
        return state

    def wrong(self, problem: str, hint: str, row: Any) -> UserCodeError:
        """Make an error that names the step."""
        return UserCodeError(self._label, problem, hint, row)

    def _of_frame(self, method: str, result: Any) -> Iterator[Given]:
        if result is None or (isinstance(result, pl.DataFrame) and result.height == 0):
            return
        if not isinstance(result, pl.DataFrame):
            raise self.wrong(
                f"{self._who(method)} returned {_kind(result)}", "return a frame of the output's columns, or None", None
            )
        self._check_names(method, result.columns, row_of(result))
        for name, dtype in self._schema.items():
            if result.schema[name] != dtype:
                problem = (
                    f"{self._who(method)} gave {name!r} as {type_text(result.schema[name])}, not {type_text(dtype)}"
                )
                raise self.wrong(problem, "cast it, or build the frame with schema=self.output", row_of(result))
        ordered = result.select(self._schema.names())
        for i, ts in enumerate(ordered[TS].cast(pl.Int64).to_list()):
            if ts is None:
                raise self.wrong(
                    f"{self._who(method)} gave a row without ts", "let every output row carry a time", row_of(result, i)
                )
            yield ts, ordered.slice(i, 1)

    def _of_mappings(self, method: str, result: Any) -> Iterator[Given]:
        if not isinstance(result, Sequence) or not all(isinstance(row, Mapping) for row in result):
            raise self.wrong(
                f"{self._who(method)} returned {_kind(result)}",
                "return a list of rows, each a dict; an empty list for none",
                None,
            )
        for row in result:
            self._check_names(method, list(row), row)
            what = f"{self._who(method)} gave a row with"
            ts = row[TS]
            if isinstance(ts, bool) or not isinstance(ts, int | datetime):
                raise self.wrong(f"{what} ts {ts!r}", "give a datetime, or microseconds as an int", row)
            ts = micros_of(ts) if isinstance(ts, datetime) else ts
            others = {n: self._fitting(n, row[n], t, what, row) for n, t in self._schema.items() if n != TS}
            yield ts, pl.DataFrame([time_column(TS, ts) if n == TS else others[n] for n in self._schema])

    def _check_names(self, method: str, names: Sequence[str], row: Any) -> None:
        for name in names:
            if name not in self._schema:
                raise self.wrong(
                    f"{self._who(method)} gave a column {name!r}, which its output has not",
                    nearest(name, self._schema),
                    row,
                )
        for name in self._schema:
            if name not in names:
                raise self.wrong(
                    f"{self._who(method)} gave no column {name!r}",
                    "give every column of the output, None for nothing",
                    row,
                )

    def _fitting(self, name: str, value: Any, dtype: pl.DataType, what: str, row: Any) -> pl.Series:
        try:
            return column(name, value, dtype)
        except Misfit as misfit:
            raise self.wrong(
                f"{what} a wrong value, {misfit}", "cast it to the type that the operator declares", row
            ) from None

    def _who(self, method: str) -> str:
        return f"{type(self._operator).__name__}.{method}"


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
