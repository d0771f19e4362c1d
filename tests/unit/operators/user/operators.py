"""Operators and runs that the tests of user operators share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl

import springtide as st
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.state.manifest import Manifest
from springtide.testing import at, compare, table

SCHEMA = {"ts": st.TIME, "k": pl.String, "x": pl.Int64}


def source(rows: Any, name: str = "s") -> st.Stream:
    return st.source(name, st.memory(rows, schema=SCHEMA), ts="ts")


def run_all(
    stream: st.Stream, folder: Path, instances: int = 2, each: int = 1000, **sides: st.Stream
) -> tuple[pl.DataFrame, list[Manifest]]:
    """Run to the end, compare all sinks with the reference; give the rows and all manifests."""
    sinks = {name: st.memory_sink() for name in ("out", *sides)}
    ends = [s.to(sinks[name], name=name) for name, s in {"out": stream, **sides}.items()]
    query = st.Query("q", *ends)
    seen: list[Manifest] = []

    def watch(engine: Engine) -> bool:
        seen.append(engine.manifest)
        return True

    engine = run(query.plan(buckets=16), folder, Options(instances, rows_per_epoch=each), between=watch)
    expected = query.run_reference()
    for name, sink in sinks.items():
        compare(sink.rows(), expected.rows(name))
    return sinks["out"].rows(), [*seen[1:], engine.manifest]


class Sum(st.KeyOperator):
    """The sum of each key so far."""

    state: ClassVar = {"total": pl.Int64}
    output: ClassVar = {"k": pl.String, "total": pl.Int64, "ts": st.TIME}

    def init(self, key: Any) -> Any:
        return {"total": 0}

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        rows = []
        for x, ts in tuples.select("x", "ts").iter_rows():
            state["total"] += x
            rows.append({"k": key[0], "total": state["total"], "ts": ts})
        return rows


class Quiet(Sum):
    """Says when a key has been quiet for 5 s, and forgets it."""

    state: ClassVar = {"total": pl.Int64, "due": pl.Int64}
    timer = "due"

    def init(self, key: Any) -> Any:
        return {"total": 0, "due": None}

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        super().process(key, state, tuples, ready_ts)
        state["due"] = ready_ts + 5_000_000
        return []

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        state["due"] = None
        return [{"k": key[0], "total": state["total"], "ts": ready_ts}]

    def keep(self, key: Any, state: Any) -> bool:
        return state["due"] is not None


class Counts(st.BucketOperator[Any]):
    """Counts per key, and all that it was asked to do."""

    output: ClassVar = {"k": pl.String, "n": pl.Int64, "ts": st.TIME}

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.live = 0

    def init(self) -> Any:
        self.live += 1
        return {}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        self.log.append(("process", tuples["x"].to_list(), ready_ts))
        rows = []
        for k, ts in tuples.select("k", "ts").iter_rows():
            state[k] = state.get(k, 0) + 1
            rows.append({"k": k, "n": state[k], "ts": ts})
        return pl.DataFrame(rows, schema=self.output)

    def deserialize(self, data: pl.DataFrame) -> Any:
        self.live += 1
        return super().deserialize(data)

    def free(self, state: Any) -> None:
        self.live -= 1


class Told(Counts):
    """Is told of the time too, and gives its counts at the end."""

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        return super().process(state, tuples, ready_ts).clear()

    def on_time(self, state: Any, ready_ts: int) -> pl.DataFrame | None:
        self.log.append(("on_time", ready_ts))
        if ready_ts < st.END_OF_TIME:
            return None
        rows = [{"k": k, "n": n, "ts": at("1h")} for k, n in sorted(state.items())]
        return pl.DataFrame(rows, schema=self.output)


ROWS = table("ts k x\n 1s a 1\n 2s b 2\n 3s a 3\n PAUSE\n 4s a 4\n 9s c 5\n PAUSE\n 20s a 6\n 21s b 7")
