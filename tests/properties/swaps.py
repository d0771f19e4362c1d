"""Other forms of a random query that give the same rows to its sinks, and runs that change from one to the other (SM-3).

What comes beside the query, and goes again: a source with a name before all others, steps with state, sinks. What comes into it: stateless steps that change
nothing, between any two others. None of it may change a row of the others.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import polars as pl

import springtide as st
from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.query.errors import QueryError, TakenBackError
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine
from springtide.state.savepoints import release, savepoints
from tests.properties.queries import Case

SWAPPED = 0.3
"""Of the cases: the query is replaced while it runs."""


class Swaps:
    """The forms that one case goes through. The seed decides, and not how the rest of the case is done."""

    def __init__(self, one: Case) -> None:
        """Begin with the query as it is."""
        self._random, self._one = Random(one.seed + 0.03125), one
        self._often = self._random.choice([0.1, 0.5]) if self._random.random() < SWAPPED else 0.0
        self.plan, self._wanted = one.plan, one.plan
        """What runs, as far as a run that was killed may have come; and what was to run next."""

    def between(self, engine: Engine) -> None:
        """Replace the query between two epochs, perhaps; a form whose first epoch fails is taken back."""
        if self._random.random() >= self._often:
            return
        plan = self._wanted = self._form()
        try:
            engine.replace(plan, lambda epoch: inprocess.execute(plan, epoch), None)
        except TakenBackError as error:
            if "a test wanted" not in str(error):
                raise
            return
        except QueryError as error:
            if "change both sides" not in str(
                error
            ):  # a stream was joined with itself, and now one side goes through a step
                raise
            self._wanted = self.plan
            return
        self.plan = plan
        if engine.checkpoint.remote is None and self._random.random() < 0.5:
            for name in savepoints(engine.root):
                release(engine.root, name)

    def other(self) -> Plan:
        """Return the form that a run has that was not known to have been replaced when it ended, and was."""
        self.plan = self._wanted
        return self.plan

    def _form(self) -> Plan:
        random, ends = self._random, list(self._one.query.of_kind(steps.Sink).values())
        sources = [st.Stream(s, steps.OUT, s.schema) for s in self._one.query.of_kind(steps.Source).values() if s.ts]
        if random.random() < 0.4:
            rows = pl.DataFrame({"x": [1, 2, 3], "ts": [1, 2, 3]}).with_columns(pl.col("ts").cast(st.TIME))
            beside = st.source("a-beside", st.memory(rows), ts="ts")
            ends.append(beside.to(st.memory_sink(), name="beside"))
            if random.random() < 0.5:
                counts = beside.aggregate(window=st.tumbling("1s"), n=st.count(), name="a-counts")
                ends.append(counts.to(st.memory_sink(), name="beside-counts"))
        if sources and random.random() < 0.6:
            source = random.choice(sources)
            window = random.choice([st.tumbling("1s"), st.sliding("5s", every="2s")])
            more = source.aggregate(
                window=window, n=st.count(), name=f"more-{source.step.name}-{window}".replace(" ", "-")
            )
            ends.append(more.filter(pl.col("n") > 1).to(st.memory_sink(), name="more"))
        if sources and random.random() < 0.3:
            ends.append(random.choice(sources).to(st.memory_sink(), name="copy"))
        query = st.Query(self._one.query.name, *ends)
        if random.random() < 0.4:
            query = st.Query(query.name, *Padded(query, random, random.choice([0.1, 0.5, 1.0])).sinks())
        return query.plan(buckets=self._one.plan.buckets)


class Padded:
    """A query with stateless steps between its own that let everything pass."""

    def __init__(self, query: st.Query, random: Random, share: float) -> None:
        """Put them on this share of the streams."""
        self._query, self._random, self._share = query, random, share
        self._made: dict[steps.Step, steps.Step] = {}
        self._count = 0

    def sinks(self) -> list[steps.Sink]:
        """Return its sinks; all steps have the names that they have in the query."""
        return [self._step(sink) for sink in self._query.of_kind(steps.Sink).values()]  # type: ignore[misc]

    def _step(self, step: steps.Step) -> steps.Step:
        if step not in self._made:
            inputs = tuple(map(self._stream, step.inputs))
            self._made[step] = replace(step, name=self._query.name_of(step), inputs=inputs)
        return self._made[step]

    def _stream(self, stream: st.Stream) -> st.Stream:
        same = replace(stream, step=self._step(stream.step))
        if self._random.random() >= self._share:
            return same
        self._count += 1
        name, columns = f"pad-{self._count}", [c for c in stream.schema if c != "ts"]
        if columns and "ts" in stream.schema and self._random.random() < 0.5:
            return same.map(pl.col(self._random.choice(columns)), name=name)
        return same.filter(pl.lit(True), name=name)
