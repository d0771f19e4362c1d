"""Random queries over random data, each made from one seed.

    seed ─→ inputs: time scale, columns, physical streams of rows and markers
       └──→ a pool of streams, grown step by step ─→ sinks

Results are compared to the bit: sums of floats decide on predicates and on the total order like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

import springtide as st
from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.testing import MemorySink
from tests.properties.inputs import LARGE, Inputs
from tests.properties.steps import KINDS

BUCKETS = (1, 2, 8, 16, 256)


@dataclass(frozen=True)
class Case:
    """A query with its input, and what it runs on."""

    seed: int
    query: st.Query
    sinks: dict[str, MemorySink]
    plan: Plan
    rows_per_epoch: int
    """A few: then there are many epochs, and segments are merged."""

    @property
    def inputs(self) -> str:
        """The input as text, for the report of a failure."""
        sources = {n: s.connector for n, s in self.query.of_kind(steps.Source).items()}
        lines = []
        for name, source in sources.items():
            for stream, rows in source.read_all().items():  # type: ignore[attr-defined]
                shown = rows.to_dicts() if isinstance(rows, pl.DataFrame) else rows
                lines += [f"{name}/{stream}:", *(f"  {row}" for row in shown)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Made:
    """A stream of the query."""

    stream: st.Stream

    def columns(self, fits: Callable[[pl.DataType], bool] = lambda _: True) -> list[str]:
        """Name the columns, but for ts, of a kind of type."""
        return [n for n, t in self.stream.schema.items() if n != "ts" and fits(t)]


def case(seed: int, folder: Path) -> Case:
    """Make the case of a seed; input that comes from files is written to the folder."""
    return Maker(Random(seed), seed, folder).case()


@dataclass
class Maker:
    """Makes one case."""

    random: Random
    seed: int
    folder: Path
    numbers: dict[str, int] = field(default_factory=dict)
    exploded: int = 0
    sides: list[st.Stream] = field(default_factory=list)
    """Side outputs of steps: each goes to a sink of its own."""

    def case(self) -> Case:
        r, inputs = self.random, Inputs(self.random, self.folder)
        self.unit = inputs.unit
        sources = [inputs.source(f"s{i}") for i in range(r.choice([1, 1, 1, 2, 2, 3]))]
        pool = [Made(s) for s in sources]
        for _ in range(r.choice([1, 2, 2, 3, 4, 5])):
            self.grow(pool)
        if r.random() < 0.85 and not any(m.stream.step.stateful for m in pool):
            pool.append(self.stateful(pool, r.choice(pool[-2:])))
        sinks: dict[str, Any] = {}
        ends = [self.end(made.stream, "out", sinks) for made in self.leaves(pool)]
        for source in sources:
            if r.random() < 0.5:
                ends.append(self.end(source.late, "late", sinks))
            if r.random() < 0.3:
                ends.append(self.end(source.rejected, "rejected", sinks))
        ends += [self.end(side, "side", sinks) for side in self.sides]
        if r.random() < 0.1:
            ends.append(self.end(inputs.untimed(), "untimed", sinks))
        query = st.Query(f"case-{self.seed}", *ends)
        return Case(
            self.seed, query, sinks, query.plan(buckets=r.choice(BUCKETS)), r.choice([2, 6, 20, 1000, 1000, 1000])
        )

    def leaves(self, pool: list[Made]) -> list[Made]:
        """Choose what goes to sinks: the last stream, and sometimes others."""
        others = self.random.sample(pool[:-1], min(len(pool) - 1, self.random.choice([0, 0, 0, 1, 2])))
        return [pool[-1], *others]

    def end(self, stream: st.Stream, name: str, sinks: dict[str, Any]) -> Any:
        sink = st.memory_sink()
        name = f"{name}{len(sinks)}"
        sinks[name] = sink
        return stream.to(sink, name=name)

    # ── stateless steps ───────────────────────────────────────────────────────────────────────────────────────────

    def grow(self, pool: list[Made]) -> None:
        """Add what one more step makes."""
        r = self.random
        made = r.choice(pool) if r.random() < 0.4 else pool[-1]
        match r.choice(["map", "filter", "narrow", "explode", "split", "union", "union", "aggregate", "aggregate"]):
            case "map":
                pool.append(self.map(made))
            case "filter":
                pool.append(replace(made, stream=made.stream.filter(self.predicate(made))))
            case "narrow":
                pool.append(self.narrow(made))
            case "explode":
                pool.append(self.explode(made))
            case "split":
                pool.extend(self.split(made))
            case "union":
                pool.append(self.union(r.choice(pool), made))
            case "aggregate":
                pool.append(self.stateful(pool, made))

    def stateful(self, pool: list[Made], made: Made) -> Made:
        """Add a stateful step: a windowed aggregate, or another one of those in `tests.properties.steps`."""
        kinds = [None, None, *KINDS]
        kind = self.random.choice(kinds)
        return self.aggregate(made) if kind is None else kind(self, pool, made) or self.aggregate(made)

    def map(self, made: Made) -> Made:
        """Make one or two columns, or replace one."""
        stream = made.stream
        for _ in range(self.random.choice([1, 1, 2])):
            name, expr = self.expression(Made(stream))
            target = name if self.random.random() < 0.3 else self.fresh("c", name)
            stream = stream.map(expr.alias(target))
        return Made(stream)

    def expression(self, made: Made) -> tuple[str, pl.Expr]:
        """Choose a column and an expression over it."""
        r = self.random
        name = r.choice(made.columns() or ["ts"])
        x, dtype = pl.col(name), made.stream.schema[name]
        options = [x, x.is_null()]
        if dtype.is_float():
            options += [x * 2, x.fill_null(0.5), -x, x.is_nan()]
        elif dtype.is_integer():
            options += [x + 1, x % 3, x.fill_null(1), pl.when(x > 1).then(x), x.cast(pl.Float64) / 4]
        elif dtype == pl.String:
            options += [x.str.len_chars().cast(pl.Int64), x.str.to_uppercase(), x + "!", x.str.split(" ")]
        elif dtype == pl.Boolean:
            options += [~x, x.cast(pl.Int8)]
        elif isinstance(dtype, pl.Duration):
            options += [x * 2, x.dt.total_microseconds()]
        elif isinstance(dtype, pl.Datetime):
            options += [x.dt.truncate("1m"), (x - pl.col("ts")), x.dt.epoch("us") % 4]
        elif isinstance(dtype, pl.Decimal):
            options += [x.cast(pl.Float64) > 1.1]
        elif isinstance(dtype, pl.List):
            options += [x.list.len().cast(pl.Int64), x.list.first()]
        return name, r.choice(options)

    def predicate(self, made: Made) -> pl.Expr:
        """Make a truth value, sometimes null."""
        r = self.random
        name = r.choice(made.columns() or ["ts"])
        x, dtype = pl.col(name), made.stream.schema[name]
        options = [x.is_not_null(), pl.lit(r.random() < 0.7)]
        if dtype.is_numeric() and not dtype.is_decimal():
            options += [x > 0, x <= 3]
        elif dtype == pl.String:
            options += [x != "A", x.str.contains("a|B")]
        elif dtype == pl.Boolean:
            options += [x, ~x]
        elif isinstance(dtype, pl.Datetime):
            options += [x.dt.epoch("us") // self.unit % 3 != 0]
        elif isinstance(dtype, pl.List):
            options += [x.list.len() > 1]
        return r.choice(options)

    def narrow(self, made: Made) -> Made:
        """Select, drop or rename columns."""
        r, stream, names = self.random, made.stream, made.columns()
        kept = r.sample(names, r.randint(1, len(names))) if names else []
        if not names:
            return made
        match r.randrange(3):
            case 0:
                return Made(stream.select(*kept))
            case 1 if len(kept) < len(names):
                return Made(stream.drop(*kept))
        name = r.choice(kept)
        return Made(stream.rename({name: self.fresh("n", name)}))

    def explode(self, made: Made) -> Made:
        """Explode a list column; make one first if there is none. No more than three can stand before a step that needs the order."""
        r, stream = self.random, made.stream
        self.exploded += 1
        if self.exploded > 3:
            return made
        lists = made.columns(lambda t: isinstance(t, pl.List))
        if lists:
            return replace(made, stream=stream.explode(r.choice(lists)))
        name = r.choice(made.columns(lambda t: t == pl.Int64 or t == pl.String) or ["ts"])
        target, x = self.fresh("e", name), pl.col(name)
        more = x + "z" if stream.schema[name] == pl.String else x + 1 if name != "ts" else x
        listed = stream.map(
            pl.concat_list(more, x).alias(target)
        )  # the larger one first: the content would order them otherwise
        return replace(made, stream=listed.explode(target))

    def split(self, made: Made) -> list[Made]:
        """Give the branches; sometimes brought together again, with the stream itself used twice."""
        rest = "rest" if self.random.random() < 0.7 else None
        branches = made.stream.split(rest=rest, a=self.predicate(made), b=self.predicate(made))
        parts = [replace(made, stream=part) for part in branches]
        if self.random.random() < 0.5:
            parts.append(replace(made, stream=st.union(*branches)))
        if self.random.random() < 0.2:
            parts.append(replace(made, stream=made.stream.union(branches["a"])))
        return parts

    def union(self, one: Made, other: Made) -> Made:
        """Put two streams together, on the columns that they share; the same stream twice is fine."""
        left, right = one.stream.schema, other.stream.schema
        shared = [n for n in one.columns() if n in right and left[n] == right[n]]
        if not shared:
            return self.union(other, other) if other.columns() else other
        self.random.shuffle(shared)
        streams = [m.stream if m.columns() == shared else m.stream.select(*shared) for m in (one, other)]
        return Made(st.union(*streams))

    # ── aggregates ────────────────────────────────────────────────────────────────────────────────────────────────

    def aggregate(self, made: Made, window: Any = None) -> Made:
        """Aggregate, over windows of time of every shape if no other one is given."""
        r = self.random
        keys = [n for n in made.columns(_is_key) if n not in ("window_start", "window_end")]
        by = r.sample(keys, min(len(keys), r.choice([0, 1, 1, 1, 2])))
        functions: dict[str, Any] = {}
        for _ in range(r.choice([1, 1, 2, 3])):
            column = r.choice([None, *made.columns()])
            functions[self.fresh("a", column)] = self.function(made, column)
        given = made.stream.aggregate(by=by, window=window or self.window(), **functions)
        if any(name.startswith(LARGE) for name in functions) and "reason" not in by:
            self.sides.append(given.rejected)  # sums that do not fit
        return Made(given)

    def function(self, made: Made, name: str | None) -> Any:
        """Choose an aggregate of a column."""
        if name is None:
            return st.count()
        dtype = made.stream.schema[name]
        options = [st.count(name), st.first(name), st.last(name), st.collect(name)]
        if made.stream.step.kind in ("explode", "union") and self.random.random() < 0.5:
            return self.random.choice(options[1:])  # here the order has most parts
        if _is_key(dtype):
            options += [st.count_distinct(name), st.approx_distinct(name, k=64), st.approx_frequent(name, 3)]
        if not isinstance(dtype, pl.List | pl.Struct):
            options += [st.min(name), st.max(name)]
        if dtype.is_numeric() or isinstance(dtype, pl.Duration) or dtype == pl.Boolean:
            options += [st.sum(name), st.mean(name)]
        if dtype.is_numeric():
            options += [st.var(name), st.std(name)]
        if dtype.is_numeric() and not name.startswith(LARGE):
            options.append(st.approx_quantile(name, self.random.choice([0.0, 0.25, 0.5, 0.99, 1.0])))
        if dtype == pl.Int64:
            options += [_spread_of(name), _weighted(name)]
        return self.random.choice(options)

    def window(self) -> Any:
        """Choose a window: tumbling, sliding by a divisor of its size, or not by one."""
        r, unit = self.random, self.unit
        every = r.choice([1, 1, 2, 3, 5, 10])
        shapes = [every, every, every * r.randint(2, 6), every + r.randint(1, 2 * every + 1)]
        size = r.choice([*shapes, every * r.randint(8, 40)])  # the last one: windows of many panes
        fine = r.choice([unit, unit, max(1, unit // 2), max(1, unit // 7)])
        return st.sliding(timedelta(microseconds=size * fine), every=timedelta(microseconds=every * fine))

    def fresh(self, letter: str, origin: str | None = None) -> str:
        """Give a name that no column has; it shows when the column comes from one with large numbers."""
        letter = LARGE if origin is not None and origin.startswith(LARGE) else letter
        self.numbers[letter] = self.numbers.get(letter, 0) + 1
        return f"{letter}{self.numbers[letter]}"


def _is_key(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal() or dtype in (pl.String, pl.Boolean)


def _spread_of(name: str) -> Any:
    """The user's own aggregate: the greatest less the smallest value."""
    x = pl.col(name)
    return st.user_aggregate(
        init={"low": None, "high": None},
        add={"low": x.min(), "high": x.max()},
        merge={"low": pl.col("low").min(), "high": pl.col("high").max()},
        finish=pl.col("high") - pl.col("low"),
    )


def _weighted(name: str) -> Any:
    """The user's own aggregate: sum and count in one text."""
    x = pl.col(name)
    return st.user_aggregate(
        init={"n": 0, "total": 0},
        add={"n": x.count().cast(pl.Int64), "total": x.sum()},
        merge={"n": pl.col("n").sum(), "total": pl.col("total").sum()},
        finish=pl.format("{}/{}", "total", "n"),
    )
