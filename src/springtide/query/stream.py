"""Streams: what users chain. Every method checks its arguments at once and returns a new stream; nothing runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from springtide.query import steps
from springtide.query.aggregates import Aggregate
from springtide.query.connectors import SinkConnector, SourceConnector
from springtide.query.errors import QueryError, nearest, shown
from springtide.query.expressions import IntoExpr, check_columns, name_hint, named, predicate_of, resolve
from springtide.query.operators import OWN_KEYS, BucketOperator, KeyOperator, UserOperator
from springtide.query.spelling import spell_out
from springtide.query.types import TIME, TS, Length, check_keys, instance, micros, schema_from, type_text, whole
from springtide.query.windows import LastN, Sliding, Window

WINDOW_START, WINDOW_END, RANK, COUNT = "window_start", "window_end", "rank", "count"

Names = str | Sequence[str]


@dataclass(frozen=True, eq=False)
class Stream:
    """A logical stream of tuples with a schema: one output of a step."""

    step: steps.Step
    port: str
    schema: pl.Schema
    timed: bool = True
    """Tuples have a timestamp and an order. Not so the `late` and `rejected` rows, and sources without `ts`."""

    def __post_init__(self) -> None:
        """Refuse columns whose names mean something else to the engine or to Polars."""
        for column in self.schema:
            if column.startswith("__") or column == "*" or (column.startswith("^") and column.endswith("$")):
                name, inputs = self.step.name, self.step.inputs
                label = f"{name} ({self.step.kind})" if name else f"{self.step.kind} after {inputs[0]._label}"
                whose = "the engine's own columns" if column.startswith("__") else "a pattern of Polars"
                raise QueryError(label, f"the column {column!r} is called like {whose}", "give it another name")

    # ── side outputs ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def late(self) -> Stream:
        """The rows of this source that came too late: behind their physical stream by more than `max_disorder`.

        >>> calls.late.to(st.memory_sink()).kind
        'sink'
        """
        source = self._source("late")
        if source.ts is None:
            raise QueryError(self._label, "has no late rows", "rows are late only where there is a time: give it a ts=")
        return Stream(source, steps.LATE, self.schema, timed=False)

    @property
    def rejected(self) -> Stream:
        """The rows of this source that do not fit its schema, as JSON, with the reason.

        >>> list(calls.rejected.schema)
        ['source', 'stream', 'position', 'reason', 'row']
        """
        text = pl.String()
        schema = pl.Schema({"source": text, "stream": text, "position": pl.Int64(), "reason": text, "row": text})
        return Stream(self._source("rejected"), steps.REJECTED, schema, timed=False)

    def _source(self, what: str) -> steps.Source:
        if not isinstance(self.step, steps.Source) or self.port != steps.OUT:
            raise QueryError(
                self._label, f"has no {what} rows", f"only sources have: use .{what} on the stream that st.source made"
            )
        return self.step

    # ── stateless steps ───────────────────────────────────────────────────────────────────────────────────────────

    def map(self, *exprs: IntoExpr, name: str | None = None, **more: IntoExpr) -> Stream:
        """Add or replace columns; the timestamp stays as it is (SC-1).

        >>> list(calls.map(minutes=pl.col("duration") / 60).schema)
        ['src', 'dst', 'duration', 'ts', 'minutes']
        """
        label = self._next("map", name)
        for column, text in more.items():
            if isinstance(text, str) and text not in self.schema:
                hint = f"for the text itself write {column}=pl.lit({text!r}); {nearest(text, self.schema)}"
                raise QueryError(label, f"there is no column {text!r}", hint)
        every = spell_out(label, self.schema, named(exprs, more, label))
        made = resolve(label, self.schema, every)
        if not made:
            raise QueryError(label, "no column is made", "give an expression: .map(minutes=pl.col('seconds') / 60)")
        if self.timed and self._changes_ts(every):
            raise QueryError(
                label, "a map cannot change ts", "name the event time in st.source, or give the new column another name"
            )
        schema = pl.Schema({**self.schema, **made})
        return self._then(steps.Map(name=name, inputs=(self,), schema=schema, exprs=every))

    def select(self, *exprs: IntoExpr, name: str | None = None, **more: IntoExpr) -> Stream:
        """Keep only these columns; `ts` always stays.

        >>> list(calls.select("src", minutes=pl.col("duration") / 60).schema)
        ['src', 'minutes', 'ts']
        """
        label = self._next("select", name)
        every = spell_out(label, self.schema, named(exprs, more, label))
        schema = resolve(label, self.schema, every)
        if not schema:
            raise QueryError(label, "no column is selected", nearest("", self.schema))
        if self.timed and self._changes_ts(every):
            raise QueryError(label, "a select cannot change ts", "give the new column another name")
        if not self.timed and not any(e.meta.root_names() for e in every):
            raise QueryError(label, "no column of the input is selected", "add constants with .map, then select")
        if self.timed and TS not in schema:
            every, schema = (*every, pl.col(TS)), pl.Schema({**schema, TS: TIME})
        return self._then(steps.Select(name=name, inputs=(self,), schema=schema, exprs=every))

    def drop(self, *columns: str, name: str | None = None) -> Stream:
        """Leave columns out.

        >>> list(calls.drop("dst").schema)
        ['src', 'duration', 'ts']
        """
        label = self._next("drop", name)
        check_columns(label, self.schema, columns)
        if self.timed and TS in columns:
            raise QueryError(label, "ts cannot be dropped", "every stream with time keeps it")
        keep = {n: t for n, t in self.schema.items() if n not in columns}
        if not keep:
            raise QueryError(label, "no column would be left", "keep at least one")
        return self._then(
            steps.Select(name=name, inputs=(self,), schema=pl.Schema(keep), exprs=tuple(pl.col(n) for n in keep))
        )

    def rename(self, columns: Mapping[str, str], *, name: str | None = None) -> Stream:
        """Give columns other names.

        >>> list(calls.rename({"src": "caller"}).schema)
        ['caller', 'dst', 'duration', 'ts']
        """
        label = self._next("rename", name)
        if not isinstance(columns, Mapping):
            raise QueryError(label, f"{shown(columns)} does not say what becomes what", "write {'old': 'new'}")
        check_columns(label, self.schema, columns)
        for to in columns.values():
            if not isinstance(to, str):
                raise QueryError(label, f"{shown(to)} is not a name", "write {'old': 'new'}, both as texts")
        if self.timed and TS in columns:
            raise QueryError(label, "ts cannot be renamed", "copy it: .map(when=pl.col('ts'))")
        if self.timed and TS in columns.values():
            raise QueryError(label, "the name ts is taken by the event time", "give the column another name")
        new = [columns.get(n, n) for n in self.schema]
        self._unique(label, new)
        exprs = tuple(
            pl.col(old).alias(to) if old != to else pl.col(old) for old, to in zip(self.schema, new, strict=True)
        )
        return self._then(
            steps.Select(
                name=name,
                inputs=(self,),
                schema=pl.Schema(dict(zip(new, self.schema.values(), strict=True))),
                exprs=exprs,
            )
        )

    def filter(self, predicate: pl.Expr, *, name: str | None = None) -> Stream:
        """Keep the tuples for which the predicate holds; null does not hold.

        >>> calls.filter(pl.col("duration") > 600).step.describe()
        'duration > 600'
        """
        label = self._next("filter", name)
        predicate = predicate_of(label, self.schema, predicate)
        return self._then(steps.Filter(name=name, inputs=(self,), schema=self.schema, predicate=predicate))

    def explode(self, column: str, *, name: str | None = None) -> Stream:
        """Make one tuple of each element of a list column, in the list's order.

        >>> words = calls.map(word=pl.col("dst").str.split("-")).explode("word")
        >>> words.schema["word"]
        String
        """
        label = self._next("explode", name)
        check_columns(label, self.schema, [column])
        dtype = self.schema[column]
        if not isinstance(dtype, pl.List):
            raise QueryError(
                label,
                f"{column!r} is {type_text(dtype)}, not a list",
                "make a list first, for example with .str.split(' ')",
            )
        inner = instance(dtype.inner)
        return self._then(
            steps.Explode(name=name, inputs=(self,), schema=pl.Schema({**self.schema, column: inner}), column=column)
        )

    def split(self, *, rest: str | None = None, name: str | None = None, **predicates: pl.Expr) -> Branches:
        """Send each tuple to the first output whose predicate holds, to `rest` if none does (SC-1: Filter).

        >>> short, other = calls.split(short=pl.col("duration") < 60, rest="other")
        """
        label = self._next("split", name)
        if not predicates:
            raise QueryError(label, "no predicate", "name at least one output: split(short=pl.col('duration') < 60)")
        if rest is not None and (not isinstance(rest, str) or not rest):
            hint = "rest= is the name of the output for all other tuples: rest='other'"
            raise QueryError(label, f"rest={shown(rest)} is not a name", hint)
        checked = tuple((port, predicate_of(label, self.schema, p)) for port, p in predicates.items())
        ports = [*predicates, *([rest] if rest else [])]
        self._unique(label, ports, "output")
        step = steps.Split(name=name, inputs=(self,), schema=self.schema, predicates=checked, rest=rest)
        return Branches({port: Stream(step, port, self.schema, self.timed) for port in ports})

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """Put the tuples of streams with the same columns into one stream.

        >>> a, b = calls.split(a=pl.col("duration") < 60, rest="b")
        >>> a.union(b).step.kind
        'union'
        """
        label = self._next("union", name)
        inputs: list[Stream] = [self]
        for other in others:
            self._stream(label, other)
            for column in [*self.schema, *other.schema]:
                if column not in other.schema or column not in self.schema:
                    has, lacks = (self, other) if column in self.schema else (other, self)
                    raise QueryError(
                        label,
                        f"{has._label} has the column {column!r}, {lacks._label} has not",
                        "select the same columns on every input",
                    )
                mine, theirs = self.schema[column], other.schema[column]
                if mine != theirs:
                    raise QueryError(
                        label,
                        f"{column!r} is {type_text(mine)} in {self._label} but {type_text(theirs)} in {other._label}",
                        f"cast one of them: .map(pl.col({column!r}).cast(pl.{mine}))",
                    )
            if other.timed != self.timed:
                hint = "give both sources a ts; late and rejected rows have none"
                raise QueryError(label, "one input has a time and the other has not", hint)
            same_order = list(other.schema) == list(self.schema)
            inputs.append(other if same_order else other.select(*self.schema))
        if not others:
            raise QueryError(label, "only one input", "give at least two streams")
        return self._then(steps.Union(name=name, inputs=tuple(inputs), schema=self.schema))

    # ── stateful steps ────────────────────────────────────────────────────────────────────────────────────────────

    def aggregate(self, by: Names = (), *, window: Window, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """Compute aggregates of each group in each window (SC-2).

        >>> busy = calls.aggregate(by="src", window=st.sliding("1h", every="1m"), n=st.count())
        >>> list(busy.schema)
        ['ts', 'src', 'window_start', 'window_end', 'n']
        """
        label = self._next("aggregate", name)
        if isinstance(by, Aggregate):
            hint = "write it as in n=st.count(); by= names the columns to group by"
            raise QueryError(label, f"the aggregate {by} has no name", hint)
        keys = self._keys(label, "by", by)
        self._needs_time(label)
        self._window(label, window)
        if not aggregates:
            raise QueryError(label, "no aggregate", "name at least one: n=st.count()")
        for column, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                problem = f"{column}={shown(aggregate)} is not an aggregate"
                raise QueryError(label, problem, "use st.count(), st.mean('x') and the like")
        self._unique(label, [TS, *keys, WINDOW_START, WINDOW_END, *aggregates])
        bound = tuple(a.bind(label, column, self.schema) for column, a in aggregates.items())
        schema = pl.Schema(
            {
                TS: TIME,
                **_types(self.schema, keys),
                WINDOW_START: TIME,
                WINDOW_END: TIME,
                **{b.name: b.output_type for b in bound},
            }
        )
        return self._then(
            steps.Aggregate(name=name, inputs=(self,), schema=schema, by=keys, window=window, aggregates=bound)
        )

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

        Ties go to the smaller value. `per` ranks inside groups; `sketch` counts approximately in bounded memory.

        >>> list(calls.top_k(3, "dst", window=st.tumbling("1m")).schema)
        ['ts', 'window_start', 'window_end', 'rank', 'dst', 'count']
        """
        label = self._next("top_k", name)
        k = whole(label, "k", k)
        keys, groups = self._keys(label, "by", by), self._keys(label, "per", per)
        self._needs_time(label)
        self._window(label, window)
        if not keys:
            raise QueryError(label, "nothing to rank", "name the columns in by=")
        if not isinstance(window, Sliding):
            raise QueryError(label, f"a ranking needs a window of time, not {window}", "use st.tumbling or st.sliding")
        if k < 1:
            raise QueryError(label, f"k={k} ranks nothing", "give a number above zero")
        total: pl.DataType = pl.Int64()
        if weight is not None:
            check_columns(label, self.schema, [weight])
            if not self.schema[weight].is_integer():
                raise QueryError(
                    label,
                    f"the weight {weight!r} is {type_text(self.schema[weight])}",
                    "give an integer column, so that ranks do not depend on rounding",
                )
        if sketch is not None:
            sketch = whole(label, "sketch", sketch)
            if sketch < k or sketch < 8 or sketch & (sketch - 1):
                hint = "give a power of two, at least 8 and some times k"
                raise QueryError(label, f"a sketch of {sketch} cannot rank {k}", hint)
        self._unique(label, [TS, *groups, WINDOW_START, WINDOW_END, RANK, *keys, COUNT])
        schema = pl.Schema(
            {
                TS: TIME,
                **_types(self.schema, groups),
                WINDOW_START: TIME,
                WINDOW_END: TIME,
                RANK: pl.Int64(),
                **_types(self.schema, keys),
                COUNT: total,
            }
        )
        return self._then(
            steps.TopK(
                name=name,
                inputs=(self,),
                schema=schema,
                k=k,
                by=keys,
                per=groups,
                window=window,
                weight=weight,
                sketch=sketch,
            )
        )

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
        """Pair tuples with equal keys, at most `within` apart in time or among the last n of the key.

        A pair carries the later `ts`; an unmatched left tuple the time at which that is certain. Columns of the right
        side whose names are taken get `suffix`; `where` says more about a pair.

        >>> pairs = calls.join(calls, on="src", within="60s", where=pl.col("dst") < pl.col("dst_right"))
        >>> list(pairs.schema)
        ['src', 'dst', 'duration', 'ts', 'dst_right', 'duration_right']
        """
        label = self._next("join", name)
        self._stream(label, other)
        both, left, right = (
            _names(label, "on", on),
            _names(label, "left_on", left_on),
            _names(label, "right_on", right_on),
        )
        if bool(both) == bool(left) or bool(left) != bool(right):
            raise QueryError(label, "the keys are not clear", "give either on=, or both left_on= and right_on=")
        for side, stream, keys in (("left", self, both or left), ("right", other, both or right)):
            for key in keys:
                if isinstance(key, str) and key not in stream.schema:
                    problem = f"there is no column {key!r} on the {side}"
                    raise QueryError(label, problem, nearest(key, stream.schema))
        left_keys, right_keys = self._keys(label, "on", both or left), other._keys(label, "on", both or right)
        if len(left_keys) != len(right_keys):
            raise QueryError(
                label,
                f"{len(left_keys)} keys on the left, {len(right_keys)} on the right",
                "give as many on both sides",
            )
        for a, b in zip(left_keys, right_keys, strict=True):
            mine, theirs = self.schema[a], other.schema[b]
            if mine != theirs:
                raise QueryError(
                    label,
                    f"the key {a!r} is {type_text(mine)} on the left, {b!r} is {type_text(theirs)} on the right",
                    f"cast one of them: .map(pl.col({b!r}).cast(pl.{mine}))",
                )
        if not isinstance(how, str) or how not in ("inner", "left"):
            raise QueryError(label, f"how={shown(how)} is no kind of join", "use 'inner' or 'left'")
        shared = {b for a, b in zip(left_keys, right_keys, strict=True) if a == b}
        window, right_columns, schema = self._pair(label, other, within, shared, suffix)
        if where is not None:
            where = self._pair_predicate(label, schema, where, suffix)
        return self._then(
            steps.Join(
                name=name,
                inputs=(self, other),
                schema=schema,
                left_on=left_keys,
                right_on=right_keys,
                window=window,
                how=how,
                where=where,
                right_columns=right_columns,
            )
        )

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
        """Pair tuples for which any predicate holds, at most `within` apart in time or among the last n (SC-1, ST-6).

        >>> near = calls.theta_join(calls, (pl.col("duration") - pl.col("duration_right")).abs() <= 10, within="5m")
        >>> near.step.describe()
        '(duration - duration_right).abs() <= 10, within 5m'
        """
        label = self._next("theta_join", name)
        self._stream(label, other)
        window, right_columns, schema = self._pair(label, other, within, set(), suffix)
        predicate = self._pair_predicate(label, schema, predicate, suffix)
        if routing is not None and (not isinstance(routing, str) or routing not in ("grid", "broadcast")):
            hint = "use 'grid', 'broadcast', or leave it to the compiler"
            raise QueryError(label, f"routing={shown(routing)} is unknown", hint)
        return self._then(
            steps.ThetaJoin(
                name=name,
                inputs=(self, other),
                schema=schema,
                predicate=predicate,
                window=window,
                routing=routing,
                right_columns=right_columns,
            )
        )

    def operator(self, operator: UserOperator, *, keys: Names = (), name: str | None = None) -> Stream:
        """Run your own code with explicit state (ST-4, SM-1).

        `keys` may name a list column: a tuple with three keys reaches three states (ST-2).

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
        label = self._next("operator", name)
        self._needs_time(label)
        if isinstance(operator, type):
            raise QueryError(label, f"{operator.__name__} is a class", f"give an object: {operator.__name__}()")
        if not isinstance(operator, BucketOperator | KeyOperator):
            hint = "derive a class from st.KeyOperator or st.BucketOperator and give an object of it"
            raise QueryError(label, f"{shown(operator)} is not an operator", hint)
        names = _names(label, "keys", keys)
        check_columns(label, self.schema, names)
        many = len(names) == 1 and isinstance(self.schema[names[0]], pl.List)
        if many:
            dtype = self.schema[names[0]]
            assert isinstance(dtype, pl.List)
            check_keys(label, names, pl.Schema({names[0]: dtype.inner}))
            if OWN_KEYS in self.schema:
                problem = f"the operator gets the keys of a tuple in {OWN_KEYS!r}, and there is such a column already"
                raise QueryError(label, problem, "rename it before this step")
        else:
            for key in names:
                if isinstance(self.schema[key], pl.List):
                    raise QueryError(
                        label, f"{key!r} is a list, and not the only key", "explode it first, or name it alone"
                    )
            self._keys(label, "keys", names)
        output = getattr(operator, "output", None)
        if not isinstance(output, Mapping) or not output:
            raise QueryError(
                label, f"{type(operator).__name__} declares no output schema", "set output = {'ts': st.TIME, ...}"
            )
        schema = schema_from(label, "output", output)
        if schema.get(TS) != TIME:
            problem = "lacks ts" if TS not in schema else f"has ts as {type_text(schema[TS])}"
            raise QueryError(
                label,
                f"the output schema of {type(operator).__name__} {problem}",
                "add 'ts': st.TIME; each output row carries the time of what caused it",
            )
        if isinstance(operator, KeyOperator):
            state = getattr(operator, "state", None)
            if not isinstance(state, Mapping):
                raise QueryError(
                    label, f"{type(operator).__name__} declares no state schema", "set state = {'total': pl.Int64, ...}"
                )
            columns = schema_from(label, "state", state)
            timer = operator.timer
            if timer is not None and (not isinstance(timer, str) or timer not in columns):
                problem = f"the timer {shown(timer)} is no column of the state"
                raise QueryError(label, problem, nearest(str(timer), columns))
            if timer is not None and columns[timer] != pl.Int64:
                problem = f"the timer {timer!r} is {type_text(columns[timer])}"
                raise QueryError(label, problem, "it is a time in microseconds: make it pl.Int64")
            if not names:
                raise QueryError(
                    label, f"{type(operator).__name__} works per key but there are no keys", "name them: keys='user'"
                )
        return self._then(
            steps.Operate(name=name, inputs=(self,), schema=schema, operator=operator, keys=names, many=many)
        )

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def to(self, sink: SinkConnector, *, name: str | None = None) -> steps.Sink:
        """Send the rows to a sink; `st.Query` takes what this returns.

        >>> calls.to(st.memory_sink()).describe()
        'memory'
        """
        label = self._next("sink", name)
        if isinstance(sink, type) or not isinstance(sink, SinkConnector):
            hint = "use st.parquet_sink(path), st.console(), st.memory_sink() and the like"
            raise QueryError(label, f"{shown(sink)} is not a sink", hint)
        problem = sink.check(self.schema)
        if problem is not None:
            raise QueryError(
                label,
                f"{sink.describe()} cannot take these rows: {problem}",
                "select or cast the columns before the sink",
            )
        return steps.Sink(name=name, inputs=(self,), schema=self.schema, connector=sink)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _label(self) -> str:
        name = self.step.name or self.step.kind
        return name if self.port == steps.OUT else f"{name}.{self.port}"

    def _next(self, kind: str, name: str | None) -> str:
        if name is None:
            return f"{kind} after {self._label}"
        steps.check_name(kind, name)
        return f"{name} ({kind})"

    def _then(self, step: steps.Step) -> Stream:
        return Stream(step, steps.OUT, step.schema, timed=self.timed)

    @staticmethod
    def _changes_ts(exprs: Sequence[pl.Expr]) -> bool:
        return any(e.meta.output_name() == TS and not e.meta.undo_aliases().meta.eq(pl.col(TS)) for e in exprs)

    @staticmethod
    def _stream(label: str, other: object) -> None:
        if not isinstance(other, Stream):
            hint = "give a stream, as st.source and each step make one"
            if isinstance(other, list | tuple):
                hint = "give the streams one by one: a.union(b, c)"
            elif isinstance(other, Branches):
                hint = f"take one of its outputs: {', '.join(other.names)}"
            raise QueryError(label, f"{shown(other)} is not a stream", hint)

    def _needs_time(self, label: str) -> None:
        if not self.timed:
            raise QueryError(
                label,
                f"{self._label} has no time",
                "give the source a ts=; late and rejected rows have no order and take only stateless steps",
            )

    def _window(self, label: str, window: Window) -> None:
        if not isinstance(window, Window):
            hint = "use st.tumbling, st.sliding, st.last_n or st.session"
            raise QueryError(label, f"{shown(window)} is not a window", hint)
        window.check(label)

    def _keys(self, label: str, option: str, names: Names) -> tuple[str, ...]:
        keys = _names(label, option, names)
        check_columns(label, self.schema, keys)
        self._unique(label, keys)
        if self.timed and TS in keys:
            raise QueryError(
                label,
                "ts cannot be a key",
                "a window groups by time; copy ts into another column to group by it all the same",
            )
        check_keys(label, keys, self.schema)
        return keys

    def _pair(
        self, label: str, other: Stream, within: Length | LastN, shared: set[str], suffix: str
    ) -> tuple[steps.JoinWindow, tuple[tuple[str, str], ...], pl.Schema]:
        """Work out what both joins share: the window and the columns of a pair."""
        self._needs_time(label)
        other._needs_time(label)
        window: steps.JoinWindow
        if not isinstance(suffix, str):
            raise QueryError(label, f"suffix={shown(suffix)} is not a text", "write for example suffix='_right'")
        if isinstance(within, Window) and not isinstance(within, LastN):
            hint = "give the greatest distance in time, such as '60s', or st.last_n(n)"
            raise QueryError(label, f"a join has no window '{within}'", hint)
        if isinstance(within, LastN):
            window = within
            if within.every != 1:
                raise QueryError(
                    label,
                    f"a join looks back after every tuple, not every {within.every}",
                    f"use st.last_n({within.size})",
                )
        else:
            try:
                window = steps.Within(micros(within))
            except ValueError as error:
                problem, _, hint = str(error).partition(": ")
                raise QueryError(label, problem, hint) from None
        if isinstance(window, LastN):
            window.check(label)
        elif window.length < 0:
            raise QueryError(label, f"a window of {within} has no time in it", "give a length of zero or more")
        right = [n for n in other.schema if n != TS and n not in shared]
        renamed = tuple((n, f"{n}{suffix}" if n in self.schema else n) for n in right)
        taken = set(self.schema)
        for n, to in renamed:
            if to in taken:
                problem = f"the right side's {n!r} would be called {to!r}, and there is such a column already"
                raise QueryError(label, problem, f"choose another suffix= than {suffix!r}, or rename a column before")
            taken.add(to)
        return window, renamed, pl.Schema({**self.schema, **{to: other.schema[n] for n, to in renamed}})

    @staticmethod
    def _pair_predicate(label: str, schema: pl.Schema, predicate: Any, suffix: str) -> pl.Expr:
        if isinstance(predicate, pl.Expr) and f"{TS}{suffix}" in set(predicate.meta.root_names()) - set(schema):
            hint = "copy the right side's own time before: other.map(when=pl.col('ts'))"
            raise QueryError(label, "a pair has one ts, the later of the two", hint)
        return predicate_of(label, schema, predicate)

    @staticmethod
    def _unique(label: str, names: Sequence[str], what: str = "column") -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise QueryError(label, f"the {what} {name!r} is there twice", "give one of them another name")
            seen.add(name)


class Branches:
    """The outputs of a split: by name, as attributes, or unpacked in order.

    >>> parts = calls.split(short=pl.col("duration") < 60, rest="other")
    >>> parts["short"] is parts.short, parts.names
    (True, ('short', 'other'))
    """

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        """Keep the streams in order."""
        self._streams = dict(streams)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(self._streams)

    def __getitem__(self, port: str) -> Stream:
        """Give the output of that name."""
        if not isinstance(port, str) or port not in self._streams:
            raise QueryError("(split)", f"there is no output {shown(port)}", nearest(str(port), self._streams))
        return self._streams[port]

    def __getattr__(self, port: str) -> Stream:
        """Give the output of that name."""
        streams: dict[str, Stream] = self.__dict__.get("_streams", {})
        if port not in streams:
            raise AttributeError(f"the split has no output {port!r}; {nearest(port, streams)}")
        return streams[port]

    def __iter__(self) -> Iterator[Stream]:
        """Give the streams in order, so that a split can be unpacked."""
        return iter(self._streams.values())


def source(
    name: str,
    connector: SourceConnector,
    *,
    ts: str | None = None,
    max_disorder: Length = "0s",
    idle_after: Length | None = None,
) -> Stream:
    """Begin a query with tuples from outside.

    `ts` names the column with the event time: a time (taken as UTC when it has no zone), or an integer of microseconds; in
    the stream it is called `ts`. Rows of one physical stream may be out of order by `max_disorder`; a physical stream
    without rows for `idle_after` no longer holds the others back.

    >>> events = st.source("events", st.memory(schema={"when": pl.Datetime("ms"), "x": pl.Int64}), ts="when")
    >>> events.schema
    Schema([('ts', Datetime(time_unit='us', time_zone='UTC')), ('x', Int64)])
    """
    if not isinstance(name, str):
        raise QueryError("(source)", "the source has no name", "st.source('calls', …): the name comes first")
    steps.check_name("source", name)
    label = f"{name} (source)"
    if isinstance(connector, pl.DataFrame | pl.LazyFrame):
        raise QueryError(label, f"{shown(connector)} is not a source", "wrap a frame: st.memory(frame)")
    if isinstance(connector, type) or not isinstance(connector, SourceConnector):
        hint = "use st.parquet(path), st.memory(rows) and the like"
        raise QueryError(label, f"{shown(connector)} is not a source", hint)
    try:
        columns = connector.schema()
    except QueryError as error:
        raise QueryError(label, error.problem, error.hint) from None
    if not columns:
        raise QueryError(label, f"{connector.describe()} has no columns", "give it a schema=")
    schema = dict(columns)
    if ts is not None:
        check_columns(label, columns, [ts])
        dtype = columns[ts]
        if not (isinstance(dtype, pl.Datetime | pl.Date) or dtype in (pl.Int64, pl.String)):
            raise QueryError(
                label,
                f"the time {ts!r} is {type_text(dtype)}",
                "give a column of times, of ISO texts, or of microseconds as i64",
            )
        if ts != TS and TS in columns:
            raise QueryError(
                label,
                f"{ts!r} is to become ts but there is a column 'ts' already",
                "use ts='ts', or rename that column in the source",
            )
        schema = {TS if n == ts else n: TIME if n == ts else t for n, t in columns.items()}
    elif TS in columns:
        raise QueryError(
            label,
            "there is a column 'ts' but it is not the event time",
            "say ts='ts', or rename that column in the source",
        )
    lengths = []
    for option, value in (("max_disorder", max_disorder), ("idle_after", idle_after)):
        try:
            lengths.append(None if value is None else micros(value))
        except ValueError as error:
            problem, _, hint = str(error).partition(": ")
            raise QueryError(label, f"{option}: {problem}", hint) from None
        if (lengths[-1] or 0) < 0:
            raise QueryError(label, f"{option}={shown(value)} is below zero", "give a length of zero or more")
    step = steps.Source(
        name=name,
        inputs=(),
        schema=pl.Schema(schema),
        connector=connector,
        ts=ts,
        max_disorder=lengths[0] or 0,
        idle_after=lengths[1],
        columns=columns,
    )
    return Stream(step, steps.OUT, step.schema, timed=ts is not None)


def union(*streams: Stream, name: str | None = None) -> Stream:
    """Put the tuples of several streams into one; the same as `first.union(*others)`.

    >>> st.union(calls, calls).step.kind
    'union'
    """
    if not streams:
        raise QueryError("(union)", "no inputs", "give at least two streams")
    Stream._stream("(union)", streams[0])
    return streams[0].union(*streams[1:], name=name)


def _names(label: str, option: str, names: Any) -> tuple[str, ...]:
    """Take one name or a sequence of names; whether there are such columns is seen later."""
    if isinstance(names, str):
        return (names,)
    if isinstance(names, list | tuple):
        return tuple(names)
    hint = "write one name, or a list of names"
    if isinstance(names, pl.Expr):
        hint = name_hint(names)
    elif isinstance(names, set | frozenset):
        hint = "a set has no order: write a list"
    raise QueryError(label, f"{option}={shown(names)} does not name columns", hint)


def _types(schema: pl.Schema, names: tuple[str, ...]) -> dict[str, pl.DataType]:
    return {n: schema[n] for n in names}
