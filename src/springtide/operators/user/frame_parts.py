"""Many small parts of one frame, for code that looks at a few rows at a time.

Polars is made for columns: cutting two rows out of a frame takes microseconds, and selecting two of their columns a tenth of a millisecond. A
`FramePart` is a frame like any other, but it is only cut out when necessary. What is usually asked of a few rows (how many there are, their
values one after another, some of the columns) is answered from Python lists that are made once for all parts.
"""

from __future__ import annotations

from typing import Any

import polars as pl


class FrameParts:
    """A frame that is handed out in parts.

    >>> whole = FrameParts(pl.DataFrame({"x": [1, 2, 3], "y": [4, 5, 6]}))
    >>> part = whole.part(1, 3)
    >>> part.height, part.select("y").rows(), part["x"].sum(), isinstance(part, pl.DataFrame)
    (2, [(5,), (6,)], 5, True)
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        """Take the whole frame."""
        self.frame = frame
        self.names = tuple(frame.columns)
        self._columns: dict[str, pl.Series] = {}
        self._rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        self._choices: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def part(self, start: int, end: int, names: tuple[str, ...] | None = None) -> FramePart:
        """Return the rows from `start` up to but not including `end`, with all columns or only those in `names`."""
        made = _new(FramePart)
        made._whole, made._names, made._start, made._end = self, names or self.names, start, end
        return made

    def column(self, name: str) -> pl.Series:
        """Return a whole column."""
        if name not in self._columns:
            self._columns[name] = self.frame[name]
        return self._columns[name]

    def rows(self, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return all rows of these columns as Python values."""
        rows = self._rows.get(names)
        if rows is None:
            rows = self._rows[names] = self.frame.select(names).rows()
        return rows

    def choice(self, given: tuple[Any, ...]) -> tuple[str, ...] | None:
        """Return the chosen columns if only plain names are given, each once; None for anything else."""
        try:
            found = self._choices.get(given)
        except TypeError:  # a list, or expressions
            return self.choice(tuple(given[0])) if len(given) == 1 and isinstance(given[0], list) else None
        if found is None and given and len(set(given)) == len(given) and all(n in self.names for n in given):
            found = self._choices[given] = given
        return found


class FramePart(pl.DataFrame):
    """Some rows of a frame. Once it has been cut out, and may have been changed, Polars alone answers for it."""

    _whole: FrameParts
    _names: tuple[str, ...]
    _start: int
    _end: int

    def __getattr__(self, name: str) -> Any:
        """Cut the frame out when Polars asks for it."""
        if name != "_df":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        frame = self._whole.frame.slice(self._start, self._end - self._start)
        columns = frame if self._names is self._whole.names else frame.select(self._names)
        self._df = columns._df
        return self._df

    @classmethod
    def _from_pydf(cls, py_df: Any) -> pl.DataFrame:
        """Return plain frames from its operations, not parts."""
        return pl.DataFrame._from_pydf(py_df)

    @property
    def height(self) -> int:
        """Count the rows."""
        return super().height if "_df" in self.__dict__ else self._end - self._start

    def __len__(self) -> int:
        """Count the rows."""
        return self.height

    def __getitem__(self, key: Any) -> Any:
        """Return a column, or anything else that Polars returns."""
        if type(key) is not str or "_df" in self.__dict__ or key not in self._names:
            return super().__getitem__(key)
        return self._whole.column(key).slice(self._start, self._end - self._start)

    def select(self, *exprs: Any, **named: Any) -> pl.DataFrame:
        """Select columns; plain names do not require cutting anything out."""
        if named or "_df" in self.__dict__ or self._names is not self._whole.names:
            return super().select(*exprs, **named)
        chosen = self._whole.choice(exprs)
        return super().select(*exprs) if chosen is None else self._whole.part(self._start, self._end, chosen)

    def rows(self, *, named: Any = False) -> Any:
        """Return the rows as tuples or dicts."""
        if named or "_df" in self.__dict__:
            return super().rows(named=named)
        return self._whole.rows(self._names)[self._start : self._end]

    def iter_rows(self, *, named: Any = False, buffer_size: int = 512) -> Any:
        """Iterate over the rows, as tuples or dicts."""
        if "_df" in self.__dict__:
            return super().iter_rows(named=named, buffer_size=buffer_size)
        rows = self._whole.rows(self._names)[self._start : self._end]
        return (dict(zip(self._names, row, strict=True)) for row in rows) if named else iter(rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return list(self.iter_rows(named=True))


_new = FramePart.__new__
