"""`springtide state` shows what is in the segments of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import polars as pl
import pytest
from typer.testing import Result

import springtide as st
from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess
from springtide.runtime.state_description import state_description
from springtide.runtime.state_reader import readable, rows_of, with_keys
from springtide.state.checkpoint import Checkpoint
from springtide.testing import PAUSE, at
from tests.wording import says

Run = Callable[..., Result]

# 400 rows, one per second: time is 00:06:39 and the windows that end at 00:06 are given.
#
#   pane      00:00  00:02  00:04  00:06
#   window    └─────────────┘
#   window           └─────────────┘         the last one that is closed
#   window                  └─────────────┘  open


def test_overview(run: Run, checkpoint: Callable[..., Path]) -> None:
    head, table = run("state", checkpoint(epochs=4)).stdout.split("\n\n")
    assert head == "query numbers, state after epoch 3"
    row = table.splitlines()[1].split("  ")
    assert [cell.strip() for cell in row if cell][:3] == ["counts", "k", "2"]
    assert table.rstrip().endswith("2024-05-01 00:04:00  2024-05-01 00:06:00  2024-05-01 00:06:00")


def test_rows_of_open_windows(query: st.Query, checkpoint: Callable[..., Path]) -> None:
    hints = state_description(query.plan())["counts"]
    _, rows = rows_of(Checkpoint(checkpoint(epochs=4)), "counts", hints)
    shown = readable(rows, hints).collect()
    assert shown.columns == ["k", "pane", "avg.sum", "avg.count", "top", "bucket", "instance", "epoch"]
    merged = shown.group_by("k", "pane", maintain_order=True).agg(pl.col("avg.sum", "avg.count").sum(), pl.max("top"))
    assert merged["k"].to_list() == ["a", "a", "b", "b", "c", "c"]
    assert {f"{pane:%H:%M}" for pane in merged["pane"]} == {"00:04", "00:06"}
    a = merged.filter(pl.col("k") == "a")
    assert a["avg.sum"].to_list() == [sum(range(240, 360, 3)), sum(range(360, 400, 3))]
    assert a["top"].to_list() == [357, 399]


def test_rows_with_a_key(run: Run, checkpoint: Callable[..., Path]) -> None:
    ckpt = checkpoint(epochs=4)
    for key in ("b", "k=b"):
        head, table = run("state", ckpt, "counts", "--key", key, "--limit", 1).stdout.split("\n\n")
        assert head.startswith("counts after epoch 3: ")
        assert head.endswith(" rows, the first 1")
        assert table.splitlines()[1].startswith("b  2024-05-01 00:04")
        assert len(table.splitlines()) == 2
    assert run("state", ckpt, "counts", "--key", "z").stdout == "counts after epoch 3: 0 rows\n"


def test_steps_that_keep_several_kinds_of_rows(run: Run, tmp_path: Path) -> None:
    """The newest version of each key, and no hidden column; another kind on demand."""
    rows = [r for i in range(40) for r in ([{"k": f"k{i % 3}", "x": i, "ts": at(f"{i}s")}] + [PAUSE] * (i % 10 == 9))]
    source = st.source("s", st.memory(rows, schema={"k": pl.String, "x": pl.Int64, "ts": st.TIME}), ts="ts")
    last = source.aggregate(by="k", window=st.last_n(4), most=st.max("x"), name="last")
    pairs = source.join(source.rename({"x": "y"}), on="k", within="20s", name="pairs")
    query = st.Query("q", last.to(st.memory_sink(), name="a"), pairs.to(st.memory_sink(), name="b"))
    inprocess.run(query.plan(), tmp_path / "ckpt", between=lambda engine: engine.manifest.epoch < 2)
    head, table = run("state", tmp_path / "ckpt", "pairs").stdout.split("\n\n")
    assert head.startswith("pairs after epoch 2, left (of left, right): ")
    assert table.splitlines()[0].split() == ["k", "x", "ts", "bucket", "instance", "epoch"]
    head, table = run("state", tmp_path / "ckpt", "last", "--kind", "held").stdout.split("\n\n")
    assert "__" not in table
    wrong = run("state", tmp_path / "ckpt", "last", "--kind", "hold")
    assert says(wrong.stderr, "error: last ", "'hold'", "; ", "'held'?")


def test_nothing_is_left_at_the_end(run: Run, checkpoint: Callable[..., Path]) -> None:
    assert run("state", checkpoint(epochs=100), "counts").stdout.endswith(": 0 rows\n")


def test_running_query(run: Run, running: Callable[[], AbstractContextManager[Path]]) -> None:
    with running() as ckpt:
        for _ in range(20):  # segments come and go meanwhile
            assert run("state", ckpt, "counts").exit_code == 0


def test_mistakes(run: Run, checkpoint: Callable[..., Path]) -> None:
    ckpt = checkpoint()
    assert says(run("state", ckpt, "count").stderr, "error: 'count' ", "stateful", "; ", "'counts'?")
    assert run("state", ckpt, "--key", "a").stderr == "error: --key needs a step; there are: counts\n"


def test_values_of_several_keys() -> None:
    rows = pl.DataFrame({"k": ["a", "a", None], "i": [1, 2, 1]})
    assert rows.filter(with_keys(["k=a", "i=2"], ["k", "i"])).rows() == [("a", 2)]
    assert rows.filter(with_keys(["k=null"], ["k", "i"])).rows() == [(None, 1)]
    with pytest.raises(SpringtideError, match=r"several keys; say which one 'a' is: --key k=a"):
        with_keys(["a"], ["k", "i"])
    with pytest.raises(SpringtideError, match="has no keys"):
        with_keys(["a"], [])


def test_places_in_the_total_order_are_left_out() -> None:
    rows = pl.LazyFrame(
        {
            "__bucket": [0],
            "0.v": [{"ts": 1, "value": "x"}],
            "1.c": [[{"ts": 1, "value": 7}]],
            "2.n": [2],
            "2.m": [1.5],
            "instance": [0],
            "epoch": [4],
        }
    )
    shown = readable(rows, {"keys": [], "aggregates": ["first", "all", "spread"]}).collect()
    assert shown.row(0, named=True) == {
        "first": "x",
        "all": [7],
        "spread.count": 2,
        "spread.mean": 1.5,
        "bucket": 0,
        "instance": 0,
        "epoch": 4,
    }


def test_state_that_is_not_durable_yet(query: st.Query, tmp_path: Path, run: Run) -> None:
    """It is in shared memory, and shown from there."""
    durability = st.Durability("never", shared_memory=tmp_path / "memory")
    options = inprocess.Options(2, rows_per_epoch=100, durability=durability)
    seen = list[str]()

    def between(engine: inprocess.Engine) -> bool:
        if engine.manifest.epoch < 3:
            return True
        assert not any((tmp_path / "ckpt" / "state").rglob("*.arrow"))
        seen.append(run("state", tmp_path / "ckpt", "counts", "--key", "b", "--limit", 1).stdout)
        return False

    inprocess.run(query.plan(), tmp_path / "ckpt", options, between=between)
    assert seen[0].startswith("counts after epoch 3: ")
    assert "b  2024-05-01 00:04" in seen[0]
