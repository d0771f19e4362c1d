"""A test kit for queries, operators and connectors.

>>> from springtide.testing import compare, table
>>> calls = st.source("calls", st.memory(schema={"ts": st.TIME, "src": pl.String}), ts="ts")
>>> counts = calls.aggregate(by="src", window=st.tumbling("10s"), n=st.count())
>>> query = st.Query("counts", counts.to(st.memory_sink()))
>>> result = query.run_reference(
...     {
...         "calls": table('''
...             ts   src
...             1s   A
...             4s   A
...             12s  B
...         ''')
...     }
... )
>>> compare(
...     result.rows().drop("ts"),
...     table('''
...         src  window_start  window_end  n
...         A    0s            10s         2
...         B    10s           20s         1
...     '''),
... )
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import polars as pl

from springtide.query import steps
from springtide.query.connectors import ONE_STREAM, Marker, Rows
from springtide.query.operators import UserOperator
from springtide.query.plurals import plural
from springtide.query.source import source
from springtide.query.types import TS, Length, Names, micros
from springtide.runtime.query import Query
from springtide.runtime.reference.difference import difference
from springtide.runtime.reference.ingest import arrive
from springtide.runtime.reference.trial import try_cut
from springtide.runtime.reference.tuples import in_frame
from springtide.sinks.memory import MemorySink, memory_sink
from springtide.sources.memory import memory
from springtide.testing.sinks import check_sink
from springtide.testing.sources import check_source
from springtide.values.row_checks import Misfit, frame_of_row

__all__ = [
    "END",
    "FAIL",
    "PAUSE",
    "MemorySink",
    "at",
    "check_operator",
    "check_sink",
    "check_source",
    "compare",
    "idle",
    "memory_sink",
    "streams",
    "table",
]

END: Final = Marker("END")
"""The physical stream ends here: no row may follow."""

PAUSE: Final = Marker("PAUSE")
"""The source has nothing for now: an epoch ends here. Results do not change."""

FAIL: Final = Marker("FAIL")
"""The process dies here, once. Results do not change."""

_MARKERS: Final = {marker.name: marker for marker in (END, PAUSE, FAIL)}
_WORDS: Final[Mapping[str, Any]] = {"null": None, "true": True, "false": False}


def idle(*, to: Length) -> Marker:
    """Say that the physical stream has nothing before a time, given as the length of time since 1970 (SC-6: a dummy tuple).

    >>> idle(to="10s")
    idle(10000000)
    """
    return Marker("idle", micros(to))


def at(time: Length) -> datetime:
    """Return the moment that is this long after the start of 1970.

    >>> at("1m30s").isoformat()
    '1970-01-01T00:01:30+00:00'
    """
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros(time))


def streams(**rows: Rows) -> dict[str, Rows]:
    """Return the physical streams of a source.

    >>> sorted(streams(a=[{"x": 1}], b=[{"x": 2}, END]))
    ['a', 'b']
    """
    return rows


def table(text: str) -> list[dict[str, Any] | Marker]:
    """Return the rows of a table written as text: names in the first line, cells without spaces.

    A cell is a number, `null`, `true`, `false`, a length of time (for the moment that long after 1970), a Python string in quotes or
    list in brackets, or a plain word. `END`, `PAUSE`, `FAIL` or `idle 10s` alone on a line are markers.

    >>> for row in table('''
    ...     ts  x     tags
    ...     1s  null  ["a","b"]
    ...     END
    ... '''):
    ...     print(row)
    {'ts': datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc), 'x': None, 'tags': ['a', 'b']}
    END
    """
    names, *lines = [line.split() for line in text.strip().splitlines()]
    rows: list[dict[str, Any] | Marker] = []
    for cells in lines:
        if len(cells) == 1 and cells[0] in _MARKERS:
            rows.append(_MARKERS[cells[0]])
        elif len(cells) == 2 and cells[0] == "idle":
            rows.append(idle(to=cells[1]))
        elif len(cells) == len(names):
            rows.append({name: _value(cell) for name, cell in zip(names, cells, strict=True)})
        else:
            raise ValueError(
                f"{' '.join(cells)!r} has {plural(len(cells), 'cell')}, but there are {plural(len(names), 'column')}"
            )
    return rows


def compare(
    actual: pl.DataFrame,
    expected: pl.DataFrame | Sequence[Mapping[str, Any] | Marker],
    *,
    float_tolerance: float = 1e-9,
) -> None:
    """Assert that two results have the same rows, in any order, with the same columns.

    `expected` may be a list of dicts, which are then given the types of `actual`. Floats may differ by the tolerance times the larger
    of the two (or times 1, if both are smaller); NaN equals NaN; lists are compared in order.

    >>> compare(pl.DataFrame({"x": [1, 2]}), [{"x": 2}, {"x": 1}])
    >>> compare(pl.DataFrame({"x": [1, 2]}), [{"x": 1}, {"x": 3}])
    Traceback (most recent call last):
    AssertionError: 0 rows changed, 1 missing, 1 extra (2 given, 2 expected)
    missing:
      x=3
    extra:
      x=2
    """
    if not isinstance(expected, pl.DataFrame):
        try:
            rows = [frame_of_row(row, actual.schema, None) for row in expected]
        except Misfit as misfit:
            raise AssertionError(f"the expected rows do not have the types of the given ones: {misfit}") from None
        expected = pl.concat(rows) if rows else pl.DataFrame(schema=actual.schema)
    problem = difference(actual, expected, float_tolerance)
    if problem is not None:
        raise AssertionError(problem)


def check_operator(
    operator: UserOperator,
    tuples: Rows,
    *,
    keys: Names = (),
    schema: Mapping[str, Any] | None = None,
    cuts: int = 20,
    seed: int = 0,
) -> pl.DataFrame:
    """Assert that the output of an operator does not depend on how its input is cut (ST-4, SM-1); return the output.

    The operator runs over the tuples one by one, then `cuts` times over input that is cut at random places; at each cut its state is
    written and read again, and the keys of a `BucketOperator` share states at random. Tuples need a column `ts`.

    >>> class Count(st.BucketOperator[dict]):
    ...     output = {"word": pl.String, "n": pl.Int64, "ts": st.TIME}
    ...
    ...     def init(self):
    ...         return {}
    ...
    ...     def process(self, state, tuples, ready_ts):
    ...         rows = []
    ...         for word, ts in tuples.select("word", "ts").iter_rows():
    ...             state[word] = state.get(word, 0) + 1
    ...             rows.append({"word": word, "n": state[word], "ts": ts})
    ...         return pl.DataFrame(rows, schema=self.output)
    >>> words = [{"ts": at(f"{i}s"), "word": word} for i, word in enumerate(["set", "first", "set"])]
    >>> check_operator(Count(), words, keys="word")["n"].to_list()
    [1, 1, 2]
    """
    stream = source("tuples", memory(tuples, schema=schema), ts=TS).operator(operator, keys=keys, name="trial")
    query = Query("trial", stream.to(memory_sink()))
    expected = query.run_reference().rows()
    start, step = query.step("tuples"), query.step("trial")
    assert isinstance(start, steps.Source)
    assert isinstance(step, steps.Operate)
    arrived = arrive(start, "tuples", {ONE_STREAM: tuples}, bounded=True)
    if arrived.late or arrived.rejected:
        wrong = (arrived.late or arrived.rejected)[0].frame.row(0, named=True)
        raise ValueError(f"tuples must fit their schema and be in the order of ts; this one does not: {wrong}")
    random = Random(seed)
    for number in range(cuts):
        given = in_frame(try_cut("trial (operator)", step, arrived.tuples, random), step.schema)
        problem = difference(given, expected, 1e-9)
        if problem is not None:
            what = f"{type(operator).__name__} gives other rows when its input is cut (seed {seed}, cut {number})"
            raise AssertionError(f"{what}: {problem}")
    return expected


def _value(cell: str) -> Any:
    if cell in _WORDS:
        return _WORDS[cell]
    if cell[0] in "\"'[":
        return ast.literal_eval(cell)
    for kind in (int, float, at):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
