"""Pictures of runs are written, whatever is in them."""

from __future__ import annotations

import builtins
import math
from pathlib import Path
from typing import Any

import pytest

from springtide.charts import chart
from springtide.elastic.decisions import Decision
from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Latency, Snapshot, SourceLoad, SubqueryLoad
from springtide.query.errors import SpringtideError
from springtide.state.bucket_map import BucketMap


def wave(epochs: int = 120) -> list[Snapshot]:
    """A minute whose load goes up and down; `heavy` has as many instances as it needs."""
    found = []
    for i in range(epochs):
        rows = round(50_000 - 25_000 * math.cos(2 * math.pi * i / epochs))
        n = 2 + round(6 * rows / 75_000)
        calls = SubqueryLoad(BucketMap(0, 2, ()), (rows,), (rows,), (0.05, 0.05), span=0.05, sources=("calls",))
        busy = tuple(rows * 0.00003 / n * (1 + 0.3 * math.sin(i + k)) for k in range(n))
        heavy = SubqueryLoad(
            BucketMap.even(64, n, version=n), (rows,), (rows,), busy, span=max(busy), upstream=("calls",)
        )
        sources = {"calls": SourceLoad(rows, rows, 0 if i % 7 else 20_000)}
        waits = Latency(0.3, 0.5 + 0.2 * (i % 5 == 0), 0.9)
        found.append(Snapshot(1000 + i * 0.5, i, 0.4, 0.5, sources, {"calls": calls, "heavy": heavy}, waits))
    return found


def moved(at: float) -> Decision:
    told = instruct(Proposal("heavy", "hot", moves={0: 1}), BucketMap.even(64, 2), time=at, epoch=0)
    assert told is not None
    return Decision("a", at, told)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_picture_is_written(kind: str, tmp_path: Path) -> None:
    path = chart(wave(), tmp_path / f"run.{kind}", title="a wave", decisions=[moved(1030.0)], marks=[(1031.0, "hot")])
    written = path.read_bytes()
    assert written.startswith(b"<?xml" if kind == "svg" else b"\x89PNG")
    assert len(written) > 10_000
    if kind == "svg":
        for text in (b"a wave", b"buckets moved", b"utilisation", b"latency, seconds", b"heavy", b"p95"):
            assert text in written


def test_the_same_run_gives_the_same_picture(tmp_path: Path) -> None:
    first, second = (chart(wave(20), tmp_path / f"{i}.svg").read_bytes() for i in range(2))
    assert first == second


def test_only_some_subqueries(tmp_path: Path) -> None:
    assert b"calls" not in chart(wave(20), tmp_path / "run.svg", subqueries=["heavy"]).read_bytes()


def test_one_epoch_of_which_little_is_known(tmp_path: Path) -> None:
    load = SubqueryLoad(BucketMap(0, 1, ()), (), (), ())
    chart([Snapshot(1.0, 0, 0.0, 0.0, {}, {"calls": load})], tmp_path / "run.svg")


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(SpringtideError, match="there is nothing to draw"):
        chart([], tmp_path / "run.svg")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SpringtideError, match=r"pip install 'springtide\[plots\]' installs it"):
        chart(wave(3), tmp_path / "run.svg")
