"""Whose a checkpoint is: a query that changed in any part is refused, and told what changed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide import state
from springtide.query.connectors import SourceConnector
from springtide.runtime import inprocess
from springtide.runtime.digests import of_code, of_expression
from springtide.runtime.engine import Options
from springtide.runtime.identity import begin_from, form, identity
from springtide.state.errors import CheckpointError
from tests.unit.runtime.crashing import SCHEMA, numbers

X = pl.col("x")
Change = Callable[[], st.Stream]


def source(name: str = "s", connector: SourceConnector | None = None, **options: Any) -> st.Stream:
    connector = connector or st.memory(numbers(30), schema=SCHEMA)
    return st.source(name, connector, **{"ts": "ts", **options})


def folded(add: pl.Expr = X.sum(), init: int = 0, merge: pl.Expr = pl.col("t").sum()) -> st.Stream:  # noqa: B008
    mine = st.user_aggregate(init={"t": init}, add={"t": add}, merge={"t": merge}, finish=pl.col("t"))
    return source().aggregate(by="key", window=st.tumbling("5s"), total=mine, name="sums")


class Threshold(st.KeyOperator):
    state: ClassVar = {"n": pl.Int64}
    output: ClassVar = {"n": pl.Int64, "ts": st.TIME}

    def __init__(self, least: int = 3) -> None:
        self.least = least

    def init(self, key: Any) -> Any:
        return {"n": 0}

    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        state["n"] += tuples.height
        return []


class Other(Threshold):
    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        state["n"] += 2 * tuples.height
        return []


Other.__qualname__ = Other.__name__ = "Threshold"


class Versioned(Other):
    version = of_code(Threshold()).digest


Versioned.__qualname__ = Versioned.__name__ = "Threshold"


def run(stream: st.Stream, root: Path, *, whole: bool = False) -> None:
    plan = st.Query("q", stream.to(st.memory_sink())).plan(buckets=4)
    inprocess.run(plan, root, Options(2, 10), between=lambda engine: whole or engine.manifest.epoch < 1)


def mapped(n: int) -> st.Stream:
    return source().map(y=X.map_batches(lambda s: s + n, return_dtype=pl.Int64))


CHANGES: dict[str, tuple[Change, Change, str]] = {
    "what a user's aggregate adds": (
        folded,
        lambda: folded(X.max()),
        "step sums: aggregates.total.add.t: x.sum() → x.max()",
    ),
    "how it is merged": (folded, lambda: folded(merge=pl.col("t").max()), "merge.t: t.sum() → t.max()"),
    "what it begins with": (folded, lambda: folded(init=1), "init.t: 0 → 1"),
    "the sides of a join": (
        lambda: source("s").join(source("t"), on="key", within="3s", name="pairs"),
        lambda: source("t").join(source("s"), on="key", within="3s", name="pairs"),
        "step pairs: inputs: s, t → t, s",
    ),
    "a long list": (
        lambda: source().filter(X.is_in(list(range(100))), name="some"),
        lambda: source().filter(X.is_in([*range(50), 1000, *range(51, 100)]), name="some"),
        "step some: predicate: x.is_in(",
    ),
    "code": (
        lambda: source().operator(Threshold(), keys="key"),
        lambda: source().operator(Other(), keys="key"),
        "operator: Threshold (",
    ),
    "its parameter": (
        lambda: source().operator(Threshold(3), keys="key"),
        lambda: source().operator(Threshold(4), keys="key"),
        "operator: Threshold (",
    ),
    "a value that a function closes over": (lambda: mapped(1), lambda: mapped(2), "exprs.1: y = x.python_udf()"),
    "disorder": (source, lambda: source(max_disorder="2s"), "step s: max_disorder: 0s → 2s"),
    "the time": (
        lambda: source(connector=st.memory(numbers(30), schema={**SCHEMA, "at": st.TIME}), ts="ts").drop("at"),
        lambda: source(
            connector=st.memory(numbers(30), schema={**{n: t for n, t in SCHEMA.items() if n != "ts"}, "at": st.TIME}),
            ts="at",
        ),
        "step s: ",
    ),
    "positions": (
        source,
        lambda: source(connector=st.memory(numbers(30), schema=SCHEMA, positions=False)),
        "step s: positions: True → False",
    ),
    "the port": (
        lambda: source().split(a=X > 3, rest="b")["a"].filter(X > 0),
        lambda: source().split(a=X > 3, rest="b")["b"].filter(X > 0),
        "step filter: inputs: split.a → split.b",
    ),
    "the order of stateless steps": (
        lambda: source().filter(X > 1, name="f").map(x=X - 1, name="m"),
        lambda: source().map(x=X - 1, name="m").filter(X > 1, name="f"),
        "inputs",
    ),
    "how a theta join is routed": (
        lambda: source("s").theta_join(source("t"), pl.col("x_right") > X, within="3s", routing="grid"),
        lambda: source("s").theta_join(source("t"), pl.col("x_right") > X, within="3s", routing="broadcast"),
        "routing: 'grid' → 'broadcast'",
    ),
    "the window": (
        lambda: source().aggregate(window=st.tumbling("4s"), n=st.count()),
        lambda: source().aggregate(window=st.tumbling("5s"), n=st.count()),
        "window: tumbling 4s → tumbling 5s",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_query_is_refused_and_told_why(tmp_path: Path, what: str) -> None:
    """Line 10: none of these is taken for the same query."""
    before, after, said = CHANGES[what]
    run(before(), tmp_path / "ckpt")
    with pytest.raises(CheckpointError, match="another form of this query") as error:
        run(after(), tmp_path / "ckpt")
    assert said in str(error.value)
    assert "give the new one a new checkpoint" in str(error.value)
    run(before(), tmp_path / "ckpt", whole=True)  # the refusal changed nothing


def test_the_same_query_is_the_same_and_sinks_may_change(tmp_path: Path) -> None:
    def told(stream: st.Stream, sink: str) -> dict[str, object]:
        found = identity(st.Query("q", stream.to(st.memory_sink(), name=sink)).plan())
        return {key: value for key, value in found.items() if key != "graph"}  # that is for people, and has the sinks

    for before, _, _ in CHANGES.values():
        assert told(before(), "here") == told(before(), "elsewhere")


@pytest.mark.parametrize(
    "what", ["what a user's aggregate adds", "the sides of a join", "code", "disorder", "positions"]
)
def test_a_savepoint_does_not_fit_another_stateful_step_or_source(tmp_path: Path, what: str) -> None:
    before, after, _ = CHANGES[what]
    run(before(), tmp_path / "ckpt")
    state.save(tmp_path / "ckpt", "old")
    plan = st.Query("q", after().to(st.memory_sink())).plan(buckets=4)
    with pytest.raises(CheckpointError, match="does not fit this query"):
        begin_from(tmp_path / "ckpt/savepoints/old", plan, tmp_path / "new")


def test_a_savepoint_fits_where_stateless_steps_changed_but_not_what_is_behind_a_side(tmp_path: Path) -> None:
    def joined(left: st.Stream, right: st.Stream) -> st.Query:
        return st.Query("q", left.join(right, on="key", within="3s", name="pairs").to(st.memory_sink()))

    s, t = source("s"), source("t")
    inprocess.run(
        joined(s, t).plan(buckets=4), tmp_path / "ckpt", Options(1, 10), between=lambda e: e.manifest.epoch < 1
    )
    state.save(tmp_path / "ckpt", "old")
    old = tmp_path / "ckpt/savepoints/old"
    begin_from(old, joined(s.filter(X > 3), t).plan(buckets=4), tmp_path / "filtered")
    with pytest.raises(CheckpointError, match=r"origins: s \| t → s, t \| t"):
        begin_from(old, joined(s.union(t), t).plan(buckets=4), tmp_path / "more")


def test_code_with_a_version_is_what_it_says(tmp_path: Path) -> None:
    run(source().operator(Threshold(), keys="key"), tmp_path / "ckpt")
    run(source().operator(Versioned(), keys="key"), tmp_path / "ckpt", whole=True)


def test_an_old_checkpoint_says_less_and_is_written_anew(tmp_path: Path) -> None:
    run(folded(), tmp_path / "ckpt")
    marker = tmp_path / "ckpt/springtide.json"
    known = json.loads(marker.read_bytes())
    known["origin"] = {"savepoint": "somewhere"}
    del known["identity"]["forms"]
    marker.write_text(json.dumps(known))
    run(folded(), tmp_path / "ckpt")
    assert "sums" in json.loads(marker.read_bytes())["identity"]["forms"]
    assert json.loads(marker.read_bytes())["origin"] == known["origin"]
    with pytest.raises(CheckpointError, match=r"add\.t"):
        run(folded(X.max()), tmp_path / "ckpt")


def test_digests_of_another_polars_or_python_are_not_compared(tmp_path: Path) -> None:
    run(mapped(1), tmp_path / "ckpt")
    marker = tmp_path / "ckpt/springtide.json"
    text = marker.read_text()
    of = identity(st.Query("q", mapped(1).to(st.memory_sink())).plan())["forms"]["map"]["exprs.1"]
    marker.write_text(text.replace(of[1], "0" * 16).replace(of[2], "Polars 1.0, Python 3.9"))
    run(mapped(1), tmp_path / "ckpt", whole=True)
    assert (
        identity(st.Query("q", mapped(1).to(st.memory_sink())).plan())["forms"]["map"]["exprs.1"][1]
        in marker.read_text()
    )


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import code_of_mine as mine
from springtide.runtime.digests import of_code, of_expression
print(of_code(mine.Op(2)).digest, of_expression(mine.EXPR, "").digest, of_code(mine.made(3)).digest)
"""
MINE = """
import functools
import polars as pl
import springtide as st
WORDS = {"a", "b", "cc", "ddd"}
def helper(x):
    return x in {"one", "two", "three"} or x in WORDS
class Op(st.BucketOperator):
    output = {"ts": st.TIME}
    def __init__(self, n):
        self.n, self.lock = n, object()
    def init(self):
        return {}
    def process(self, state, tuples, ready_ts):
        return None if helper(self.n) else None
def made(n):
    return functools.partial(helper, n)
EXPR = pl.col("x").map_batches(lambda s: s.is_in(["a", "b"]) if helper("one") else s, return_dtype=pl.Boolean)
"""


def digests(folder: Path, seed: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(folder=str(folder))],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.split()


def test_a_digest_is_the_same_in_every_process_and_changes_with_the_code(tmp_path: Path) -> None:
    for place in ("one", "two", "three"):
        (tmp_path / place).mkdir()
    (tmp_path / "one/code_of_mine.py").write_text(MINE)
    # Another place in the file, other comments and layout: the same code.
    moved = '"""A docstring."""\n\n\n' + MINE.replace("def helper(x):", 'def helper(x):  # why\n    """Says it."""\n')
    (tmp_path / "two/code_of_mine.py").write_text(moved)
    # What is called by it, and a value that it uses, are a part of it.
    (tmp_path / "three/code_of_mine.py").write_text(MINE.replace('"ddd"', '"eee"'))
    first = digests(tmp_path / "one", "1")
    assert len(set(first)) == 3
    assert digests(tmp_path / "one", "2") == first
    assert digests(tmp_path / "two", "3") == first
    assert not set(digests(tmp_path / "three", "1")) & set(first)


def test_what_has_no_source_is_digested_all_the_same() -> None:
    here: dict[str, Any] = {}
    exec("def f(x): return x + 1\ndef g(x): return x + 2", here)
    assert of_code(here["f"]).digest != of_code(here["g"]).digest
    assert of_code(here["f"]).by.startswith("Python ")
    assert of_code(len).digest == of_code(len).digest
    ring: list[Any] = []
    ring.append(ring)
    assert of_code(lambda: ring).digest


def test_secrets_in_code_are_not_written_down() -> None:
    class Keeper(Threshold):
        def __init__(self) -> None:
            self.password = "hush-hush"

    stream = source().operator(Keeper(), keys="key", name="op")
    assert "hush" not in json.dumps(form(st.Query("q", stream.to(st.memory_sink())), "op"))


def test_an_expression_is_digested_whole() -> None:
    one, other = X.is_in(list(range(100))), X.is_in([*range(50), 1000, *range(51, 100)])
    assert str(one) == str(other)
    assert of_expression(one, "").digest != of_expression(other, "").digest


class Pickled:
    """Has been sent to a worker before."""

    def process(self) -> int:
        return 1


def test_an_object_that_was_pickled_is_the_same_code() -> None:
    before = of_code(Pickled())
    pickle.dumps(Pickled())
    assert of_code(Pickled()) == before
