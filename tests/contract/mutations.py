"""The kind `mutations`: one part of a random query is changed between two starts.

A change that state depends on is refused before anything is touched, naming the step; one that is allowed (sinks, how long a stream may be idle)
gives the rows of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

import springtide as st
from springtide.query import steps
from springtide.query.aggregates import Aggregate, BoundAggregate, UserFunction
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.stream import Stream
from springtide.query.windows import LastN, Session, Sliding
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.runtime.identity import identity
from springtide.state.errors import CheckpointError
from springtide.state.savepoints import misfit
from springtide.testing import compare
from tests.properties.queries import Case, case

Change = tuple[str, steps.Step]
"""What is changed, in a few words, and the step as it is then."""

ALLOWED = 0.05
"""So many of the cases change what may change: they run to the end, which takes longer."""


def run_case(seed: int, folder: Path) -> str | None:
    """Start a query, change it, start it again."""
    random = Random(seed + 0.75)
    one = case(seed, folder / "input")
    if random.random() < ALLOWED:
        return allowed(one, random, folder / "checkpoint")
    return refused(one, random, folder / "checkpoint")


def refused(one: Case, random: Random, checkpoint: Path) -> str | None:
    """Change a part that counts: the start must be refused, and say where."""
    options = [(s, c) for s in one.query.steps.values() for c in changes(s, random)]
    step, (what, new) = random.choice(options)
    name = one.query.name_of(step)
    try:
        other = rebuilt(one.query, step, new).plan(buckets=one.plan.buckets)
    except QueryError:
        return None  # no query at all
    own, others = identity(one.plan), identity(other)
    if own == others:  # two sides that are alike
        return None if what == "the sides" else f"{what} of {name}: not a part of the identity\n{one.query.explain()}"
    begun(one, checkpoint, random.choice([0, 0, 0, 0, 0, 0, 1]), random)
    before = _contents(checkpoint)
    try:
        inprocess.run(other, checkpoint, Options(1), between=lambda _: False)
        return f"{what} of {name}: taken for the same query\n{one.query.explain()}"
    except CheckpointError as error:
        # With other sides, steps that nobody named get each other's names.
        if "another form of this query" not in str(error) or (name not in str(error) and what != "the sides"):
            return f"{what} of {name}: refused, but not told why: {error}"
    if _contents(checkpoint) != before:
        return f"{what} of {name}: refused, but not before something was touched"
    told = misfit(own, others)
    # Sides with the same sources behind them differ by stateless steps, which a savepoint lets change.
    if (step.stateful or isinstance(step, steps.Source)) and what != "the sides" and told is None:
        return f"{what} of {name}: a savepoint is taken for one that fits"
    return None


def allowed(one: Case, random: Random, checkpoint: Path) -> str | None:
    """Change what may change: sinks, their names, and how long a stream may be idle."""
    expected = one.query.run_reference()
    begun(one, checkpoint, random.randint(0, 3), random)
    anew: dict[str, Any] = {name: st.memory_sink() for name in one.sinks if random.random() < 0.5}
    ends = [
        replace(sink, name=f"{name}-anew", connector=anew[name]) if name in anew else sink
        for name, sink in one.query.of_kind(steps.Sink).items()
    ]
    query = st.Query(one.query.name, *ends)
    source = random.choice(list(query.of_kind(steps.Source).values()))
    plan = rebuilt(query, source, replace(source, idle_after=10**9)).plan(buckets=one.plan.buckets)
    _to_the_end(plan, checkpoint, Options(random.randint(1, 3), one.rows_per_epoch))
    for name, sink in one.sinks.items():
        given = pl.concat([s.rows() for s in (sink, anew.get(name)) if s is not None and s.epochs])
        wanted = expected.rows(name)
        if name.startswith("rejected"):
            given, wanted = given.drop("row"), wanted.drop("row")
        try:
            compare(given, wanted)
        except AssertionError as error:
            return f"other sinks: {name}: {error}\n{one.query.explain()}"
    return None


def begun(one: Case, checkpoint: Path, epochs: int, random: Random) -> None:
    """Run a few epochs of a query as it is."""
    options = Options(random.randint(1, 3), one.rows_per_epoch)
    try:
        inprocess.run(one.plan, checkpoint, options, between=lambda engine: engine.manifest.epoch + 1 < epochs)
    except SpringtideError as error:
        if "a test wanted" not in str(error):
            raise


def _to_the_end(plan: Any, checkpoint: Path, options: Options) -> None:
    while True:
        try:
            if inprocess.run(plan, checkpoint, options).manifest.ended:
                return
        except SpringtideError as error:
            if "a test wanted" not in str(error):
                raise


def rebuilt(query: st.Query, old: steps.Step, new: steps.Step) -> st.Query:
    """Put one step into the place of another."""
    known: dict[steps.Step, steps.Step] = {}

    def again(step: steps.Step) -> steps.Step:
        if step not in known:
            taken = new if step is old else step
            inputs = tuple(replace(s, step=again(s.step)) for s in taken.inputs)
            known[step] = replace(taken, inputs=inputs)
        return known[step]

    ends = [again(sink) for sink in query.of_kind(steps.Sink).values()]
    return st.Query(query.name, *ends)  # type: ignore[arg-type]


# ── what can be changed ───────────────────────────────────────────────────────────────────────────────────────────


def changes(step: steps.Step, random: Random) -> Iterator[Change]:
    """Name changes of a step that keep its columns but not what it does."""
    make: Callable[..., Any] = replace
    match step:
        case steps.Source():
            yield "max_disorder", make(step, max_disorder=step.max_disorder + random.choice([1, 1_000_000]))
            if hasattr(step.connector, "positions") and hasattr(step.connector, "streams"):
                yield "positions", make(step, connector=make(step.connector, positions=not step.connector.positions))
        case steps.Map() | steps.Select():
            number = random.randrange(len(step.exprs))
            changed = [_other(e) if i == number else e for i, e in enumerate(step.exprs)]
            yield "an expression", make(step, exprs=tuple(changed))
        case steps.Filter():
            yield "the predicate", make(step, predicate=_listed(step.predicate, random))
        case steps.Split():
            (first, one), (second, two), *rest = step.predicates
            if not one.meta.eq(two):
                yield "the order of predicates", make(step, predicates=((first, two), (second, one), *rest))
        case steps.Aggregate():
            yield "the window", make(step, window=_window(step.window))
            number = random.randrange(len(step.aggregates))
            bound = _aggregate(step.aggregates[number], step.inputs[0].schema, random)
            yield (
                "an aggregate",
                make(step, aggregates=(*step.aggregates[:number], bound, *step.aggregates[number + 1 :])),
            )
        case steps.TopK():
            yield "k", make(step, k=step.k + 1)
            yield "the window", make(step, window=_window(step.window))
        case steps.Join():
            yield "how long", make(step, window=_window(step.window))
            yield "how", make(step, how="left" if step.how == "inner" else "inner")
            yield "where", make(step, where=pl.lit(True) if step.where is None else _listed(step.where, random))
        case steps.ThetaJoin():
            yield "how long", make(step, window=_window(step.window))
            yield "the predicate", make(step, predicate=_listed(step.predicate, random))
            yield "the routing", make(step, routing="broadcast" if step.routing != "broadcast" else "grid")
        case steps.Operate():
            yield "the code", make(step, operator=_code(step.operator, random))
            if step.on_error == "fail":
                yield "errors", make(step, on_error="reject")
    if len(step.inputs) > 1:
        one, two, *more = step.inputs
        if (one.step, one.port) != (two.step, two.port):
            yield "the sides", make(step, inputs=(two, one, *more))
    if len(step.inputs) == 1 and not isinstance(step, steps.Sink):
        source = step.inputs[0]
        some = Stream(
            steps.Filter(name="more", inputs=(source,), schema=source.schema, predicate=pl.lit(True)),
            steps.OUT,
            source.schema,
            source.timed,
        )
        if not step.stateful:
            yield "what goes in", make(step, inputs=(some,))


def _other(expr: pl.Expr) -> pl.Expr:
    """Make an expression of the same name and type that is another one."""
    name = expr.meta.output_name()
    return pl.coalesce(expr, expr).alias(name)


def _listed(predicate: pl.Expr, random: Random) -> pl.Expr:
    """Add a condition whose long list reads the same in short, whatever is in its middle."""
    values = list(range(60))
    values[random.randrange(10, 50)] = random.randrange(10**6, 10**9)
    return predicate & pl.lit(7).is_in(values)


def _window(window: Any) -> Any:
    """Make a window a little longer."""
    match window:
        case Sliding():
            return replace(window, size=window.size + window.every)
        case LastN():
            return replace(window, size=window.size + 1)
        case Session():
            return replace(window, gap=window.gap + 1)
    (field,) = fields(window)
    return replace(window, **{field.name: getattr(window, field.name) + 1})


def _aggregate(bound: BoundAggregate, schema: pl.Schema, random: Random) -> BoundAggregate:
    """Change what an aggregate takes, does or is given."""
    return _changed(bound, random).bind("", bound.name, schema)


def _changed(bound: BoundAggregate, random: Random) -> Aggregate:
    aggregate, user = bound.aggregate, bound.aggregate.user
    if user is not None:
        part = random.choice(["add", "merge", "finish", "init"])
        name = random.choice(list(user.add))
        changed: UserFunction = {
            "add": lambda: replace(user, add={**user.add, name: user.add[name].max()}),
            "merge": lambda: replace(user, merge={**user.merge, name: user.merge[name].max()}),
            "finish": lambda: replace(user, finish=pl.coalesce(user.finish, user.finish)),
            "init": lambda: replace(user, init={**user.init, name: 5}),
        }[part]()
        return replace(aggregate, user=changed)
    if aggregate.options:
        option = random.choice(list(aggregate.options))
        value = aggregate.options[option]
        more = value / 2 + 0.01 if isinstance(value, float) else value * 2 if isinstance(value, int) else value
        if more != value:
            return replace(aggregate, options={**aggregate.options, option: more})
    if aggregate.input is None:
        return replace(aggregate, function="sum", input=pl.lit(1, dtype=pl.Int64))
    return replace(aggregate, function="last" if aggregate.function != "last" else "first", options={})


def _code(operator: Any, random: Random) -> Any:
    """Change a user's operator: a method, or something that it holds."""
    kind = type(operator)
    if random.random() < 0.5:
        other = object.__new__(kind)
        other.__dict__.update(operator.__dict__, limit=random.randrange(10**6))
        return other

    def process(self: Any, *given: Any) -> Any:
        return kind.process(self, *given)

    changed = type(kind.__name__, (kind,), {"process": process, "__module__": kind.__module__})
    changed.__qualname__ = kind.__qualname__
    other = object.__new__(changed)
    other.__dict__.update(operator.__dict__)
    return other


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != "lock"}
