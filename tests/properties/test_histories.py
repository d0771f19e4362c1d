"""Steps that come to a running query with the history of their sources give what a run from the beginning would have given from then on (SM-3).

what the new steps give = what the reference gives for all rows, without what it gives for the rows that had been read by then
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.backfilling import Backfill, history_of, plan_of
from springtide.runtime.engine import Engine, Options
from springtide.state.accounts import imbalances
from tests.properties.test_engine import folder as folder
from tests.unit.runtime.test_replacing import Total

CASES = 40


def rows(random: Random, keys: str) -> dict[str, pl.DataFrame]:
    """Make the rows of one to three physical streams, in time, and mostly in order."""
    made = {}
    for stream in range(random.randint(1, 3)):
        count = random.randint(20, 50)
        columns = {
            "k": [random.choice(keys) for _ in range(count)],
            "v": [random.randint(-9, 9) for _ in range(count)],
            "ts": [i * 5 + random.randint(0, 9) for i in range(count)],
        }
        made[f"{stream}"] = pl.DataFrame(columns).with_columns(pl.col("ts").cast(st.TIME))
    return made


def windowed(random: Random, stream: st.Stream, name: str) -> st.Stream:
    window = random.choice(
        [st.tumbling("40us"), st.sliding("60us", every="20us"), st.last_n(5), st.session("6us"), st.tumbling("500us")]
    )
    return stream.aggregate(by="k", window=window, n=st.count(), total=st.sum("v"), all=st.collect("v"), name=name)


def joined(random: Random, left: st.Stream, right: st.Stream) -> st.Stream:
    kind = random.choice(["time", "last", "theta"])
    if kind == "time":
        return left.join(right, on="k", within="15us", name="new")
    if kind == "last":
        return left.join(right, on="k", within=st.last_n(3), name="new")
    return left.theta_join(right, pl.col("v") > pl.col("v_right"), within="10us", name="new")


def new_steps(random: Random, one: st.Stream, two: st.Stream, base: st.Stream) -> dict[str, st.Stream]:
    """Make what comes: a step behind sources, behind a step that stays, or two steps one behind the other."""
    kept = one.filter(pl.col("v") != 3).map(v=pl.col("v") * 2)
    match random.choice(["windows", "join", "top", "operator", "behind what stays", "both"]):
        case "windows":
            return {"new": windowed(random, random.choice([kept, one.union(two)]), "new")}
        case "join":
            return {"new": joined(random, kept, two)}
        case "top":
            return {"new": kept.top_k(2, "k", window=st.sliding("60us", every="30us"), name="new")}
        case "operator":
            return {"new": kept.operator(Total(), keys="k", name="new")}
        case "behind what stays":
            return {"new": windowed(random, base, "new")}
    first = windowed(random, kept, "new")
    behind = first.map(v=pl.col("total")).select("k", "v", "ts")
    return {"new": first, "newer": windowed(random, behind, "newer")}


def counted(result: pl.DataFrame) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in result.iter_rows(named=True))


@pytest.mark.parametrize("seed", range(CASES))
def test_new_steps_give_what_they_would_have_given_from_then_on(seed: int, folder: Path) -> None:
    random = Random(seed)
    given = {"one": rows(random, "abc"), "two": rows(random, "bcd")}
    one, two = (
        st.source(name, st.memory(given[name]), ts="ts", max_disorder=random.choice(["4us", "9us"])) for name in given
    )
    base = one.aggregate(by="k", window=st.tumbling("20us"), v=st.sum("v"), name="base")
    out, copy = st.memory_sink(), st.memory_sink()
    ends = [base.to(out, name="out"), two.to(copy, name="copy")]
    old = st.Query("growing", *ends)
    streams = new_steps(random, one, two, base.select("k", "v", "ts"))
    sinks = {name: st.memory_sink() for name in streams}
    query = st.Query("growing", *ends, *(s.to(sinks[name], name=f"of-{name}") for name, s in streams.items()))
    plans = [q.plan(buckets=8) for q in (old, query)]
    names = history_of(plans[0], plans[1], random.choice([True, list(streams)]))
    part = plan_of(plans[1], names)
    due, ahead = random.randint(1, 8), random.choice([0, 0, 1, 4])
    backfill: Backfill | None = None
    then: dict[str, dict[str, pl.DataFrame]] | None = None

    def read(engine: Engine) -> Mapping[str, Mapping[str, int]]:
        states = engine.manifest.sources
        return {
            name: {s: (states[name].position or {}).get(s, [0, 0])[1] if name in states else 0 for s in found}
            for name, found in given.items()
        }

    def between(engine: Engine) -> bool:
        nonlocal backfill, then, ahead
        if random.random() < 0.3:
            engine.scale(
                random.choice(["base", "one+two" if "one+two" in engine.maps else "one"]), random.randint(1, 4)
            )
        done = read(engine)
        whole = all(done[n][s] < f.height for n, found in given.items() for s, f in found.items())
        if then is None and engine.manifest.epoch >= due and whole:
            backfill = backfill or engine.backfill(names, plans[1], part, lambda epoch: inprocess.execute(part, epoch))
            if ahead > 0:
                ahead -= 1
                engine.advance(backfill, plans[1])
                return True
            then = {n: {s: f.head(done[n][s]) for s, f in found.items()} for n, found in given.items()}
            engine.replace(plans[1], lambda epoch: inprocess.execute(plans[1], epoch), None, backfill)
            backfill = None
            return random.random() < 0.5
        if random.random() < 0.1:
            backfill = None  # it dies: the next run knows nothing of what was built
            return False
        return True

    while True:
        durability = st.Durability(random.choice(["epoch", "never"]), shared_memory=folder / "memory")
        limit = random.choice([6, 15])
        engine = inprocess.run(
            plans[then is not None],
            folder / "ckpt",
            Options(random.randint(1, 3), limit, random.randint(1, 3), durability=durability),
            between=between,
        )
        if engine.manifest.ended:
            break
    assert not list(imbalances(engine.manifest.accounts))
    if then is None:
        return
    everything = query.run_reference(given)
    before = query.run_reference(then, bounded=False)
    for name, sink in sinks.items():
        expected = counted(everything.rows(f"of-{name}"))
        expected.subtract(counted(before.rows(f"of-{name}")))
        assert min(expected.values(), default=0) >= 0
        assert counted(sink.rows()) == +expected, name
    assert counted(out.rows()) == counted(everything.rows("out")), (
        "what was there before gives what it always would have"
    )
