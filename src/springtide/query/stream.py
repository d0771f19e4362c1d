"""Streams, on which users chain their steps. Every method checks its arguments at once and returns a new stream; nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import polars as pl

from springtide.query import steps
from springtide.query.aggregates import Aggregate
from springtide.query.branches import Branches
from springtide.query.building.aggregating import aggregate_step, top_k_step
from springtide.query.building.joining import join_step, theta_join_step
from springtide.query.building.labels import label_after, label_of
from springtide.query.building.operating import operator_step
from springtide.query.building.stateless import (
    check_same_columns,
    drop_step,
    explode_step,
    filter_step,
    map_step,
    rename_step,
    select_step,
    sink_step,
    split_step,
    union_step,
)
from springtide.query.connectors import SinkConnector
from springtide.query.errors import MissingColumnError, QueryError, shown
from springtide.query.expressions import IntoExpr
from springtide.query.habits import STREAM, UnknownNameError, unknown
from springtide.query.operators import UserOperator
from springtide.query.preview import SAMPLE, card, look
from springtide.query.types import TS, Length, Names, check_carried
from springtide.query.usage import Parameters, Result, usage
from springtide.query.windows import LastN, Sliding, Window

AnyStep = TypeVar("AnyStep", bound=steps.Step)


def _usage(example: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    return usage(example, lambda stream, method: label_after(stream, "sink" if method == "to" else method, None))


@dataclass(frozen=True, eq=False)
class Stream:
    """A logical stream of tuples with a schema: one output of a step."""

    step: steps.Step
    port: str
    schema: pl.Schema
    timed: bool = True
    """Whether tuples have a timestamp and an order. `late` and `rejected` rows do not, nor do sources without `ts`."""

    def __post_init__(self) -> None:
        """Refuse columns whose names mean something else to the engine or to Polars, and columns that the engine cannot carry."""
        name, inputs = self.step.name, self.step.inputs
        label = f"{name} ({self.step.kind})" if name or not inputs else f"{self.step.kind} after {label_of(inputs[0])}"
        check_carried(label, self.schema)
        for column in self.schema:
            if column.startswith("__") or column == "*" or (column.startswith("^") and column.endswith("$")):
                whose = "the engine's own columns" if column.startswith("__") else "a pattern of Polars"
                raise QueryError(label, f"the column {column!r} has a name like {whose}", "give it another name")

    # ── side outputs ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def late(self) -> Stream:
        """The rows of this source that came too late: more than `max_disorder` behind their physical stream.

        >>> calls.late.to(st.memory_sink()).kind
        'sink'
        """
        source = self._source("late")
        if source.ts is None:
            raise QueryError(
                label_of(self), "it has no late rows", "only rows with a time can be late: give the source a ts="
            )
        return Stream(source, steps.LATE, self.schema, timed=False)

    @property
    def rejected(self) -> Stream:
        """The rows of this source that do not fit its schema, as JSON, with the reason; for an operator, the rows that it could not process.

        For an aggregate: the groups and windows with a sum that does not fit its type.

        >>> list(calls.rejected.schema)
        ['source', 'stream', 'position', 'reason', 'row']
        """
        if isinstance(self.step, steps.Operate) and self.port == steps.OUT:
            if self.step.on_error != "reject":
                hint = "say that it rejects them: .operator(..., on_error='reject')"
                raise QueryError(label_of(self), "it has no rejected rows", hint)
            return Stream(self.step, steps.REJECTED, self.step.rejected, timed=False)
        if isinstance(self.step, steps.Aggregate) and self.port == steps.OUT:
            if steps.REASON in self.step.by:
                problem = f"rejected groups get a column {steps.REASON!r}, and there is already such a column"
                raise QueryError(label_of(self), problem, "rename it before the aggregate")
            return Stream(self.step, steps.REJECTED, self.step.rejected, timed=False)
        text = pl.String()
        schema = pl.Schema({"source": text, "stream": text, "position": pl.Int64(), steps.REASON: text, "row": text})
        return Stream(self._source("rejected"), steps.REJECTED, schema, timed=False)

    # ── stateless steps ───────────────────────────────────────────────────────────────────────────────────────────

    @_usage("calls.map(minutes=pl.col('seconds') / 60)")
    def map(self, *exprs: IntoExpr, name: str | None = None, **more: IntoExpr) -> Stream:
        """Add or replace columns; the timestamp stays as it is (SC-1).

        >>> list(calls.map(minutes=pl.col("duration") / 60).schema)
        ['src', 'dst', 'duration', 'ts', 'minutes']
        """
        return self._add(map_step, exprs, more, name=name)

    @_usage("calls.select('src', minutes=pl.col('seconds') / 60)")
    def select(self, *exprs: IntoExpr, name: str | None = None, **more: IntoExpr) -> Stream:
        """Keep only these columns; `ts` is always kept.

        >>> list(calls.select("src", minutes=pl.col("duration") / 60).schema)
        ['src', 'minutes', 'ts']
        """
        return self._add(select_step, exprs, more, name=name)

    @_usage("calls.drop('src', 'dst')")
    def drop(self, *columns: str, name: str | None = None) -> Stream:
        """Leave out columns.

        >>> list(calls.drop("dst").schema)
        ['src', 'duration', 'ts']
        """
        return self._add(drop_step, columns, name=name)

    @_usage("calls.rename({'old': 'new'})")
    def rename(self, columns: Mapping[str, str], *, name: str | None = None) -> Stream:
        """Give columns new names.

        >>> list(calls.rename({"src": "caller"}).schema)
        ['caller', 'dst', 'duration', 'ts']
        """
        return self._add(rename_step, columns, name=name)

    @_usage("calls.filter((pl.col('x') > 1) & (pl.col('y') == 'a'))")
    def filter(self, predicate: pl.Expr, *, name: str | None = None) -> Stream:
        """Keep the tuples for which the predicate holds; null counts as false.

        >>> calls.filter(pl.col("duration") > 600).step.describe()
        'duration > 600'
        """
        return self._add(filter_step, predicate, name=name)

    @_usage("calls.explode('tags')")
    def explode(self, column: str, *, name: str | None = None) -> Stream:
        """Make one tuple for each element of a list column, in the list's order.

        >>> words = calls.map(word=pl.col("dst").str.split("-")).explode("word")
        >>> words.schema["word"]
        String
        """
        return self._add(explode_step, column, name=name)

    @_usage("calls.split(short=pl.col('duration') < 60, rest='other')")
    def split(self, *, rest: str | None = None, name: str | None = None, **predicates: pl.Expr) -> Branches:
        """Send each tuple to the first output whose predicate holds, or to `rest` if none does (SC-1: Filter).

        >>> short, other = calls.split(short=pl.col("duration") < 60, rest="other")
        """
        step = self._make(split_step, predicates, rest=rest, name=name)
        return Branches({port: Stream(step, port, step.schema, self.timed) for port in step.ports})

    @_usage("calls.union(other)")
    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """Combine streams with the same columns into one stream.

        >>> a, b = calls.split(a=pl.col("duration") < 60, rest="b")
        >>> a.union(b).step.kind
        'union'
        """
        label = label_after(self, "union", name)
        for other in others:
            _check_stream(label, other)
            check_same_columns(label, self, other)
        return self._add(union_step, others, name=name)

    # ── stateful steps ────────────────────────────────────────────────────────────────────────────────────────────

    @_usage("calls.aggregate(by=['src', 'dst'], window=st.tumbling('1m'), n=st.count())")
    def aggregate(self, by: Names = (), *, window: Window, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """Compute aggregates for each group in each window (SC-2).

        >>> busy = calls.aggregate(by="src", window=st.sliding("1h", every="1m"), n=st.count())
        >>> list(busy.schema)
        ['ts', 'src', 'window_start', 'window_end', 'n']
        """
        return self._add(aggregate_step, by, aggregates, window=window, name=name)

    @_usage("calls.top_k(3, 'dst', window=st.tumbling('1m'))")
    def top_k(
        self,
        k: int,
        by: Names,
        *,
        window: Sliding,
        per: Names = (),
        weight: str | None = None,
        sketch: int | None = None,
        name: str | None = None,
    ) -> Stream:
        """Rank the `k` most frequent values of `by` in each window; with `weight`, the heaviest (SE-9, SM-10).

        Ties go to the smaller value. `per` ranks within groups; `sketch` counts approximately in bounded memory.

        >>> list(calls.top_k(3, "dst", window=st.tumbling("1m")).schema)
        ['ts', 'window_start', 'window_end', 'rank', 'dst', 'count']
        """
        return self._add(top_k_step, k, by, window=window, per=per, weight=weight, sketch=sketch, name=name)

    @_usage("calls.join(other, on='src', within='1m', how='left')")
    def join(
        self,
        other: Stream,
        on: Names = (),
        *,
        left_on: Names = (),
        right_on: Names = (),
        within: Length | LastN,
        how: steps.How = "inner",
        where: pl.Expr | None = None,
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Pair tuples with equal keys that are at most `within` apart in time, or among the last n of the key.

        A pair carries the later `ts` of the two; an unmatched left tuple carries the time at which it is certain to stay
        unmatched. Columns of the right side whose names are taken get `suffix`; `where` is a further condition on a pair.

        >>> pairs = calls.join(calls, on="src", within="60s", where=pl.col("dst") < pl.col("dst_right"))
        >>> list(pairs.schema)
        ['src', 'dst', 'duration', 'ts', 'dst_right', 'duration_right']
        """
        _check_stream(label_after(self, "join", name), other)
        return self._add(
            join_step,
            other,
            on=on,
            left_on=left_on,
            right_on=right_on,
            within=within,
            how=how,
            where=where,
            suffix=suffix,
            name=name,
        )

    @_usage("calls.theta_join(other, pl.col('x') > pl.col('x_right'), within='1m')")
    def theta_join(
        self,
        other: Stream,
        predicate: pl.Expr,
        *,
        within: Length | LastN,
        suffix: str = "_right",
        routing: steps.Routing | None = None,
        name: str | None = None,
    ) -> Stream:
        """Pair tuples by an arbitrary predicate, at most `within` apart in time or among the last n (SC-1, ST-6).

        >>> near = calls.theta_join(calls, (pl.col("duration") - pl.col("duration_right")).abs() <= 10, within="5m")
        >>> near.step.describe()
        '(duration - duration_right).abs() <= 10, within 5m'
        """
        _check_stream(label_after(self, "theta_join", name), other)
        return self._add(theta_join_step, other, predicate, within=within, suffix=suffix, routing=routing, name=name)

    @_usage("calls.operator(YourOperator(), keys='src')")
    def operator(
        self,
        operator: UserOperator,
        *,
        keys: Names = (),
        on_error: steps.OnError = "fail",
        name: str | None = None,
    ) -> Stream:
        """Run your own code with explicit state (ST-4, SM-1).

        `keys` may name a list column: a tuple with three keys reaches three states (ST-2). An error in your code ends the query; with
        `on_error="reject"`, a row for which `process` fails goes to `.rejected` instead and has no other effect.

        >>> class Seen(st.KeyOperator):
        ...     state, output = {"n": pl.Int64}, {"n": pl.Int64, "ts": st.TIME}
        ...
        ...     def init(self, key):
        ...         return {"n": 0}
        ...
        ...     def process(self, key, state, tuples, ready_ts):
        ...         state["n"] += tuples.height
        ...         return []
        >>> calls.operator(Seen(), keys="src").step.describe()
        'Seen by src'
        """
        return self._add(operator_step, operator, keys=keys, on_error=on_error, name=name)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    @_usage("calls.to(st.parquet_sink('out/'))")
    def to(self, sink: SinkConnector, *, name: str | None = None) -> steps.Sink:
        """Send the rows to a sink; pass what this returns to `st.Query`.

        >>> calls.to(st.memory_sink()).describe()
        'memory'
        """
        return self._make(sink_step, sink, name=name)

    # ── a look ────────────────────────────────────────────────────────────────────────────────────────────────────────

    @_usage("calls.head(20)")
    def head(self, n: int = 20, *, sample: int = SAMPLE) -> pl.DataFrame:
        """Return the first rows of the stream, computed in this process by the reference interpreter from the first `sample` rows of each source.

        Windows that the sample does not complete are left out, unless the sample is all the input there is.

        >>> numbers = st.source("numbers", st.memory([{"n": 1}, {"n": 2}, {"n": 3}]))
        >>> numbers.map(pl.col("n") * 10).head(2)["n"].to_list()
        [10, 20]
        """
        for what, value in (("n", n), ("sample", sample)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise QueryError(label_of(self), f"{what}={shown(value)} is not a number of rows", "write .head(20)")
        return look(self, sample).head(n)

    @_usage("calls.show()")
    def show(self, n: int = 20, *, sample: int = SAMPLE) -> None:
        """Print what `head` returns.

        >>> st.source("numbers", st.memory([{"n": 1}])).show()
        shape: (1, 1)
        ...
        """
        rows = self.head(n, sample=sample)
        with pl.Config(tbl_rows=n, tbl_cols=-1):
            print(rows)
        if not rows.height:
            print(
                f"the first {sample:,} rows of each source produce no rows; look at more with .show(sample={100 * sample})"
            )

    def _repr_html_(self) -> str:
        """Return the columns as HTML for a notebook, with some rows if they are at hand."""
        return card(self)

    # ── what a stream is not ──────────────────────────────────────────────────────────────────────────────────────

    def __getitem__(self, key: object) -> NoReturn:
        """Refuse `calls["x"]`."""
        column = key if isinstance(key, str) else "x"
        hint = f"in an expression write pl.col({column!r}); to keep only this column write .select({column!r})"
        raise QueryError(label_of(self), "a stream cannot be indexed", hint)

    def __len__(self) -> NoReturn:
        """Refuse `len(calls)`."""
        hint = "count the tuples of a window with .aggregate(window=st.tumbling('1m'), n=st.count()), or look at the first rows with .head(20)"
        raise QueryError(label_of(self), "a stream has no length, because it need not end", hint)

    def __add__(self, other: object) -> NoReturn:
        """Refuse `calls + others`."""
        hint = "put their tuples into one stream with a.union(b), or pair them with a.join(b, on='x', within='1m')"
        raise QueryError(label_of(self), "streams cannot be added", hint)

    def __bool__(self) -> bool:
        """Return true, although a stream has no length."""
        return True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse attributes that a stream does not have, and say what to write instead."""
            if name.startswith("_") or "schema" not in self.__dict__:
                raise AttributeError(name)
            if name in self.schema:
                hint = f"in an expression write pl.col({name!r}); to keep only this column write .select({name!r})"
                raise UnknownNameError(label_of(self), f"{name!r} is a column, not a part of the stream", hint)
            raise unknown(label_of(self), name, STREAM, [n for n in dir(type(self)) if not n.startswith("_")])

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, make: Callable[..., steps.Step], *args: Any, **options: Any) -> Stream:
        """Return the stream that comes out of the step that `make` builds."""
        step = self._make(make, *args, **options)
        return Stream(step, steps.OUT, step.schema, timed=self.timed)

    def _make(self, make: Callable[..., AnyStep], *args: Any, **options: Any) -> AnyStep:
        try:
            return make(self, *args, **options)
        except MissingColumnError as error:
            streams = [self, *(arg for arg in args if isinstance(arg, Stream))]
            if not any(error.column in _times_before(stream) for stream in streams):
                raise
            hint = f"it is the event time, which is called ts in a stream: write {TS!r}"
            raise QueryError(error.step, error.problem, hint) from None

    def _source(self, what: str) -> steps.Source:
        if not isinstance(self.step, steps.Source) or self.port != steps.OUT:
            raise QueryError(
                label_of(self),
                f"it has no {what} rows",
                _HAVE[what],
            )
        return self.step


def union(*streams: Stream, name: str | None = None) -> Stream:
    """Combine several streams into one; the same as `first.union(*others)`.

    >>> st.union(calls, calls).step.kind
    'union'
    """
    if not streams:
        raise QueryError("(union)", "there are no inputs", "give at least two streams")
    _check_stream("(union)", streams[0])
    return streams[0].union(*streams[1:], name=name)


def _times_before(stream: Stream) -> set[str]:
    """Return the names that the event time has in the sources upstream of a stream."""
    if isinstance(stream.step, steps.Source):
        return {stream.step.ts} if stream.step.ts else set()
    return set().union(*(_times_before(above) for above in stream.step.inputs))


_HAVE = {
    "late": "only sources have them: use .late on the stream that st.source made",
    "rejected": "only sources, aggregates and operators have them: use .rejected on the stream that one of them made",
}


def _check_stream(label: str, other: object) -> None:
    if not isinstance(other, Stream):
        hint = "give a stream: st.source and every step return one"
        if isinstance(other, list | tuple):
            hint = "give the streams one by one: a.union(b, c)"
        elif isinstance(other, Branches):
            hint = f"take one of its outputs: {', '.join(other.names)}"
        raise QueryError(label, f"{shown(other)} is not a stream", hint)
