"""The sequential meaning of a change of form: every row is treated by the form that read it, and steps that stay keep what they have (SM-3)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.state.accounts import imbalances
from springtide.testing import compare
from tests.properties.test_engine import folder as folder

CASES = 16
FORM = "form"


def rows(random: Random) -> pl.DataFrame:
    """Make rows of some keys, in time, and mostly in order."""
    count = random.randint(30, 80)
    times = [i * 3 + random.randint(0, 8) for i in range(count)]
    return pl.DataFrame(
        {
            "k": [random.choice("abcd") for _ in range(count)],
            "v": [random.randint(-9, 9) for _ in range(count)],
            "ts": times,
        },
        schema_overrides={"v": pl.Int64},
    ).with_columns(pl.col("ts").cast(st.TIME))


class Changing:
    """A query whose stateless steps and whose user's aggregate are those of one form, or, for the reference, of the form that read each row."""

    def __init__(self, random: Random, forms: int) -> None:
        self.moduli = [random.randint(2, 5) for _ in range(forms)]
        self.factors = random.sample(range(-3, 4), forms)
        self.window = random.choice(
            [st.tumbling("20us"), st.sliding("30us", every="10us"), st.last_n(3), st.session("5us")]
        )

    def query(self, source: st.Stream, form: int | None, sink: object) -> st.Query:
        """Return a form of the query; None is all of them."""
        keep, made = (self._chosen(e, form) for e in (self._keeps, self._makes))
        summed = (
            source.filter(keep)
            .map(w=made)
            .aggregate(by="k", window=self.window, n=st.count(), total=st.sum("w"), all=st.collect("w"), name="sums")
        )
        return st.Query("changing", summed.to(sink, name="out"))  # type: ignore[arg-type]

    def _keeps(self, form: int) -> pl.Expr:
        return pl.col("v") % self.moduli[form] != 0

    def _makes(self, form: int) -> pl.Expr:
        return pl.col("v") * self.factors[form]

    def _chosen(self, of: object, form: int | None) -> pl.Expr:
        if form is not None:
            return of(form)  # type: ignore[operator, no-any-return]
        found: pl.Expr = of(0)  # type: ignore[operator]
        for other in range(1, len(self.moduli)):
            found = pl.when(pl.col(FORM) == other).then(of(other)).otherwise(found)  # type: ignore[operator]
        return found


@pytest.mark.parametrize("seed", range(CASES))
def test_every_row_is_treated_by_the_form_that_read_it(seed: int, folder: Path) -> None:
    random = Random(seed)
    given, forms = rows(random), random.randint(2, 4)
    changing, sink = Changing(random, forms), st.memory_sink()
    source = st.source("rows", st.memory(given), ts="ts", max_disorder="4us")
    plans = [changing.query(source, form, sink).plan(buckets=8) for form in range(forms)]
    read: list[tuple[int, int]] = []
    """(rows that were read before, form) for every change."""
    now = 0

    def between(engine: Engine) -> bool:
        nonlocal now
        if random.random() < 0.4:
            engine.scale("sums", random.randint(1, 4), random.choice(["virtual", "state", "window"]))
        if random.random() < 0.4:
            done = engine.manifest.sources.get("rows")
            before = 0 if done is None else done.accepted + done.late + done.rejected
            chosen = random.randrange(forms)
            engine.replace(plans[chosen], lambda epoch: inprocess.execute(plans[chosen], epoch), None)
            now = chosen
            read.append((before, now))
            if engine.manifest.ended:
                return False
        return random.random() < 0.9

    while True:
        durability = st.Durability(random.choice(["epoch", "never"]), shared_memory=folder / "memory")
        options = Options(random.randint(1, 3), random.choice([5, 15]), durability=durability)
        engine = inprocess.run(plans[now], folder / "ckpt", options, between=between)
        if engine.manifest.ended:
            break
        if read and (wrong := next((f for f in range(forms) if f != now), None)) is not None:
            with pytest.raises(SpringtideError, match="another form of this query"):
                inprocess.run(plans[wrong], folder / "ckpt", options)
    assert not list(imbalances(engine.manifest.accounts))
    marks = pl.Series(FORM, [next((f for first, f in reversed(read) if first <= i), 0) for i in range(given.height)])
    marked = st.source("rows", st.memory(given.with_columns(marks)), ts="ts", max_disorder="4us")
    expected = changing.query(marked, None, st.memory_sink()).run_reference()
    compare(sink.rows(), expected.rows("out"))
