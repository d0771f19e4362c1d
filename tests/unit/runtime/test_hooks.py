"""The hooks of connectors: called in the right order, at the right moment, and `close` whatever has happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Feed, Owner, Publication, Read, Sink, Slice, Source, Take, Writer
from springtide.runtime import inprocess
from springtide.runtime.engine import Options

SCHEMA = pl.Schema({"x": pl.Int64()})


class Counting(Source):
    """Six numbers; what happens is written down."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def schema(self) -> pl.Schema:
        return SCHEMA

    def describe(self) -> str:
        return "counting"

    def open(self, owner: Owner) -> Feed:
        self.log.append(f"open {owner.step} of {owner.query} after epoch {owner.epoch}")
        owner.note("is open")
        return CountingFeed(self.log)

    def read(self, part: Slice) -> Read:
        return Read(pl.LazyFrame({"x": range(*part.data)}, schema=SCHEMA))

    def __getstate__(self) -> dict[str, Any]:
        return {"log": []}


class CountingFeed(Feed):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        first = position or 0
        stop = min(first + limit, 6)
        self.log.append(f"take {first}")
        slices = (Slice("0", first, stop - first, [first, stop]),) if stop > first else ()
        return Take(slices, stop, streams=("0",), ended=stop == 6, backlog=6 - stop)

    def committed(self, position: Any) -> None:
        self.log.append(f"committed {position}")

    def close(self) -> None:
        self.log.append("close")


class Listing(Sink):
    """A sink that writes down what happens."""

    def __init__(self, log: list[str], refuses: str = "") -> None:
        self.log, self.refuses = log, refuses

    def describe(self) -> str:
        return "listing"

    def admit(self, owner: Owner) -> None:
        self.log.append(f"admit {owner.step}")
        if self.refuses == "admit":
            raise st.SinkError(owner.step, "no", "go away")

    def open(self, owner: Owner) -> Writer:
        self.log.append(f"open {owner.step}")
        return self

    def publish(self, publication: Publication) -> None:
        if self.refuses == f"publish {publication.epoch}":
            raise st.SinkError("out (sink)", "no", "go away")
        self.log.append(f"publish {publication.epoch}")

    def committed(self, epoch: int) -> None:
        self.log.append(f"sink committed {epoch}")

    def close(self) -> None:
        self.log.append("sink close")


def run(log: list[str], folder: Path, refuses: str = "", every: str = "epoch") -> Any:
    query = st.Query("hooks", st.source("counting", Counting(log)).to(Listing(log, refuses), name="out"))
    memory = folder / "memory" if every != "epoch" else None
    options = Options(1, rows_per_epoch=3, durability=st.Durability(every, shared_memory=memory))
    return inprocess.run(query.plan(buckets=2), folder / "ckpt", options)


def test_hooks_are_called_in_order(tmp_path: Path) -> None:
    log: list[str] = []
    engine = run(log, tmp_path)
    assert log == [
        "open counting (source) of hooks after epoch -1",
        "admit out (sink)",
        "open out (sink)",
        "take 0",
        "publish 0",
        "committed 3",
        "take 3",
        "sink committed 0",
        "publish 1",
        "committed 6",
        "sink close",
        "close",
    ]
    assert "step counting (source): is open" in str(engine.events)


def test_a_source_hears_that_an_epoch_is_durable_only_then(tmp_path: Path) -> None:
    """With state that is made durable at the end, nothing may be forgotten before."""
    log: list[str] = []
    run(log, tmp_path, every="never")
    assert [line for line in log if line.startswith("committed")] == ["committed 6"]
    assert log.index("committed 6") > log.index("publish 1")


@pytest.mark.parametrize("refuses", ["admit", "publish 1"])
def test_everything_that_was_opened_is_closed(tmp_path: Path, refuses: str) -> None:
    log: list[str] = []
    with pytest.raises(st.SinkError):
        run(log, tmp_path, refuses)
    assert log.count("close") == 1
    assert log.count("sink close") == log.count("open out (sink)")
    log.clear()
    run(log, tmp_path)
    assert [line for line in log if line.startswith("publish")] == (
        ["publish 0", "publish 1"] if refuses == "admit" else ["publish 1"]
    )


def test_a_slice_with_fewer_rows_than_announced_is_an_error(tmp_path: Path) -> None:
    class Short(Counting):
        def read(self, part: Slice) -> Read:
            return Read(super().read(part).rows.slice(1))

    query = st.Query("short", st.source("counting", Short([])).to(st.memory_sink()))
    with pytest.raises(st.UserCodeError, match=r"step counting \(source\): .*has 5 rows, but 6 were announced"):
        inprocess.run(query.plan(buckets=2), tmp_path / "ckpt")
