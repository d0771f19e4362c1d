"""The suites for connectors: all of ours pass, and a wrong one does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import (
    Entry,
    LedgerSink,
    Owner,
    Publication,
    Read,
    Secret,
    Sink,
    Slice,
    Source,
    Take,
    Target,
    failpoint,
)
from springtide.sinks import spark as spark_module
from springtide.testing import check_sink, check_source
from tests.unit.sinks.kinds import MadeUp

ROWS = pl.DataFrame({"ts": pl.Series([3, 1, 4, 1, 5, 9, 2, 6]) * 1_000_000, "x": range(8)}).with_columns(
    pl.col("ts").cast(st.TIME)
)
SCHEMA = dict(ROWS.schema)


def parquet(folder: Path) -> Source:
    for i in range(2):
        ROWS[4 * i : 4 * i + 4].write_parquet(folder / f"{i}.parquet", row_group_size=3)
    return st.parquet(folder)


def lines(folder: Path) -> Source:
    (folder / "a.csv").write_text("ts,x\n1970-01-01T00:00:01,1\nsoon,2\n1970-01-01T00:00:03,3\n")
    return st.csv(folder, schema=SCHEMA, follow=True)


def objects(folder: Path) -> Source:
    (folder / "a.json").write_text('{"ts": "1970-01-01T00:00:01", "x": 1}\n{"x": "one"}\n[]\n')
    return st.json(folder, schema=SCHEMA)


def numbers(stream: int, first: int, count: int) -> pl.DataFrame:
    return pl.select(x=pl.int_range(first, first + count) + 1000 * stream)


SOURCES: dict[str, tuple[Callable[[Path], Source], int, str | None]] = {
    "memory": (lambda _: st.memory({"a": ROWS, "b": ROWS[2:5]}), 11, "ts"),
    "memory with rows that do not fit": (
        lambda _: st.memory([{"x": 1}, {"x": "one"}, {"x": 3}], schema={"x": pl.Int64}),
        3,
        None,
    ),
    "parquet": (parquet, 8, "ts"),
    "csv": (lines, 3, "ts"),
    "json": (objects, 3, "ts"),
    "generate": (lambda _: st.generate(numbers, rate=None, total=11, streams=3), 11, None),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_our_sources_pass(kind: str, tmp_path: Path) -> None:
    make, rows, ts = SOURCES[kind]
    check_source(lambda: make(tmp_path), rows=rows, ts=ts)


class Shop:
    """A made-up database: tables with transactions."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.entry: Entry | None = None
        self.faults = 0


class Counter(Target):
    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    def entry(self) -> Entry | None:
        return self.shop.entry

    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        if self.shop.entry != before:
            return False
        rows = [] if publication is None else publication.frame()["x"].to_list()
        failpoint("shop: before the commit")
        self.shop.rows, self.shop.entry = [*self.shop.rows, *rows], after
        failpoint("shop: after the commit")
        return True


class ShopSink(LedgerSink):
    def __init__(self, shop: Shop, password: Secret) -> None:
        self.shop, self.password = shop, password

    @property
    def place(self) -> int:
        return id(self.shop)

    def describe(self) -> str:
        return "the shop"

    def connect(self, owner: Owner) -> Target:
        assert self.password.reveal() == "hunter2"
        return Counter(self.shop)


def test_a_sink_with_a_ledger_passes() -> None:
    shops: dict[str, Shop] = {}
    check_sink(
        lambda name: ShopSink(shops.setdefault(name, Shop()), Secret("hunter2")),
        lambda name: pl.DataFrame({"x": shops[name].rows}, schema={"x": pl.Int64}),
        secrets=("hunter2",),
    )


def test_our_parquet_sink_passes(tmp_path: Path) -> None:
    def read(name: str) -> pl.DataFrame:
        files = sorted((tmp_path / name).glob("**/part-*.parquet"))
        return pl.concat([pl.read_parquet(f) for f in files]) if files else pl.DataFrame()

    check_sink(lambda name: st.parquet_sink(tmp_path / name), read)


def test_our_memory_sink_passes() -> None:
    sinks: dict[str, Any] = {}
    check_sink(lambda name: sinks.setdefault(name, st.memory_sink()), lambda name: sinks[name].rows())


@pytest.mark.parametrize("kind", ["callback", "spark"])
def test_our_functions_pass(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_module, "_session", MadeUp)
    monkeypatch.setattr(spark_module, "spark_schema", lambda schema: schema)
    given: dict[str, list[pl.DataFrame]] = {}

    def make(name: str) -> Sink:
        kept = given.setdefault(name, [])
        if kind == "callback":
            return st.callback(lambda rows, epoch: kept.append(rows))
        return st.spark_sink(lambda files, epoch: kept.extend(pl.read_parquet(f) for f in files))

    check_sink(make, lambda name: pl.concat(given[name]) if given[name] else pl.DataFrame(), exactly_once=False)


# ── wrong ones ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sink_that_forgets_what_it_has_is_caught() -> None:
    given: dict[str, list[pl.DataFrame]] = {}
    with pytest.raises(AssertionError, match=r"killed at 'during-publish', visit 1: rows came twice: \[0, 1, 2\]"):
        check_sink(
            lambda name: st.callback(lambda rows, epoch: given.setdefault(name, []).append(rows)),
            lambda name: pl.concat(given[name]) if name in given else pl.DataFrame(),
        )


class Forgetful(Source):
    """A source whose slices are not what they say."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong

    def schema(self) -> pl.Schema:
        return pl.Schema({"x": pl.Int64()})

    def describe(self) -> str:
        return f"hunter2 is {self.wrong}" if self.wrong == "shown" else "forgetful"

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        first = position or 0
        stop = min(first + limit, 5)
        data: Any = {first, stop} if self.wrong == "set" else [first, stop]
        rows = stop - first + (self.wrong == "count")
        after = stop + (self.wrong == "skips" and stop < 5)
        return Take((Slice("0", first, rows, data),), after, ended=after >= 5)

    def read(self, part: Slice) -> Read:
        return Read(pl.LazyFrame({"x": range(*sorted(part.data))}, schema=self.schema()))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", ""),
        ("set", r"read at once: Slice\.data is not plain JSON .*replayable = False"),
        ("count", r"read at once: a slice of 6 rows has 5"),
        ("skips", r"cut into epochs of about 1 row.*: 2 rows missing, such as \('0', 1\)"),
        ("shown", r"shape: describe\(\) or repr\(\) shows a secret"),
    ],
)
def test_a_source_that_is_wrong_is_caught(wrong: str, said: str) -> None:
    def check() -> pl.DataFrame:
        return check_source(lambda: Forgetful(wrong), rows=5, secrets=("hunter2",))

    if not said:
        assert check()["x"].to_list() == [0, 1, 2, 3, 4]
        return
    with pytest.raises(AssertionError, match=said):
        check()
