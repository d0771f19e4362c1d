"""Window recreation and state recreation at work (SC-9).

windows    0   └──────────┘
           1       └──────────┘        begun before the change: the old owner finishes them
           2           └──────────┘    the new owner's
change  ───────────┼────────────────→
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.testing import PAUSE, at, compare


def counting(epochs: int = 10) -> tuple[st.Query, Any]:
    rows: list[Any] = []
    for i in range(epochs):
        rows += [{"k": f"k{j}", "x": i * j, "ts": at(f"{i * 10 + j}s")} for j in range(8)] + [PAUSE]
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "x": pl.Int64, "ts": st.TIME}), ts="ts")
    counts = source.aggregate(
        by="k", window=st.sliding("30s", every="10s"), n=st.count(), most=st.max("x"), name="counts"
    )
    sink = st.memory_sink()
    return st.Query("counting", counts.to(sink, name="out")), sink


def test_both_owners_get_tuples_until_the_old_windows_are_finished(tmp_path: Path) -> None:
    query, sink = counting()
    seen: list[tuple[int, bool]] = []

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 2:
            engine.scale("counts", 3, "window")
        if engine.manifest.epoch == 3:  # the first epoch with two owners: the old one still has its segments, untouched
            old, new = engine.manifest.state["counts@old"], engine.manifest.state["counts"]
            assert {s.version for s in old.segments} == {0}
            assert {s.version for s in new.segments} == {1}
        seen.append((engine.manifest.epoch, "counts@old" in engine.manifest.maps))
        return True

    engine = run(query.plan(buckets=8), tmp_path / "ckpt", Options(instances=2), between=between)
    shared = [epoch for epoch, old in seen if old]
    assert shared[0] == 3
    assert 1 <= len(shared) <= 4, "a change takes as long as a window: three panes"
    assert not engine.manifest.old_owners
    assert [note for _, note in engine.events] == [
        "scaled counts: 2 → 3 instances",
        "old windows of counts are finished: window recreation is done",
    ]
    compare(sink.rows(), query.run_reference().rows())


@pytest.mark.parametrize("protocol", ["window", "state"])
def test_a_change_underway_survives_a_restart(tmp_path: Path, protocol: Any) -> None:
    query, sink = counting()
    plan = query.plan(buckets=8)

    def change(engine: Engine) -> bool:
        if engine.manifest.epoch == 2:
            engine.scale("counts", 5, protocol)
        return engine.manifest.epoch < 3

    run(plan, tmp_path / "ckpt", Options(instances=2), between=change)
    engine = run(plan, tmp_path / "ckpt", Options())
    assert engine.manifest.maps["counts"].instances == 5
    compare(sink.rows(), query.run_reference().rows())


def test_the_new_owner_copies_the_state_in_the_epoch_of_the_change(tmp_path: Path) -> None:
    query, sink = counting()
    versions: dict[int, set[int]] = {}

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 2:
            engine.scale("counts", 4, "state")
        if engine.manifest.epoch >= 0:
            versions[engine.manifest.epoch] = {s.version for s in engine.manifest.state["counts"].segments}
        return True

    run(query.plan(buckets=8), tmp_path / "ckpt", Options(instances=2), between=between)
    assert versions[2] == {0}
    assert versions[3] == {1}, "nothing of the old owners is left"
    compare(sink.rows(), query.run_reference().rows())


def test_a_second_change_while_old_windows_are_finished(tmp_path: Path) -> None:
    """Only one old map can be kept: the next change moves nothing and waits for nothing."""
    query, sink = counting()

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch in (2, 3):
            engine.scale("counts", engine.manifest.epoch + 1, "window")
        return True

    engine = run(query.plan(buckets=8), tmp_path / "ckpt", Options(instances=2), between=between)
    decisions = [d["protocol"] for d in engine.history.read("decisions") if "protocol" in d]
    assert decisions == ["window", "virtual"]
    compare(sink.rows(), query.run_reference().rows())


def test_what_is_no_protocol(tmp_path: Path) -> None:
    query, _ = counting(1)
    engine_of: list[Engine] = []
    run(query.plan(), tmp_path / "ckpt", between=lambda engine: engine_of.append(engine) or True)  # type: ignore[func-returns-value]
    with pytest.raises(st.QueryError, match="'windows' is unknown; did you mean 'window'"):
        engine_of[0].scale("counts", 2, "windows")  # type: ignore[arg-type]
    with pytest.raises(st.QueryError, match="is unknown"):
        st.Elastic(protocol="magic")  # type: ignore[arg-type]
