"""Every row is accounted for: what was read, what went from step to step, what the sinks got; a row that came after its time is found."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import springtide as st
from springtide.cli.checkpoint import verification_text
from springtide.runtime import inprocess, tasks
from springtide.runtime.engine import Engine, Options
from springtide.runtime.epoch import Epoch
from springtide.state.accounts import imbalances
from springtide.state.checkpoint import Checkpoint
from springtide.state.verifying import verify
from springtide.testing import PAUSE

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}


def row(second: int, key: str = "a") -> dict[str, Any]:
    return {"k": key, "x": second, "ts": BEGIN + timedelta(seconds=second)}


ROWS = [row(1), row(2, "b"), {"k": 7}, row(0), PAUSE, row(30), row(31, "b"), PAUSE, row(60), row(59)]


def stream(source: st.Stream, kind: str) -> st.Stream:
    match kind:
        case "sliding":
            return source.aggregate(by="k", window=st.sliding("4s", every="2s"), n=st.count(), name="step")
        case "session":
            return source.aggregate(by="k", window=st.session("5s"), n=st.count(), name="step")
        case "last":
            return source.aggregate(by="k", window=st.last_n(1), n=st.count(), name="step")
        case "join":
            return source.join(source.map(y=pl.col("x")), on="k", within="2s", name="step")
        case "theta":
            return source.theta_join(source, pl.col("x") < pl.col("x_right"), within="2s", name="step")
        case "ranking":
            return source.top_k(2, "k", window=st.tumbling("2s"), name="step")
    raise AssertionError(kind)


KINDS = ["sliding", "session", "last", "join", "theta", "ranking"]


def run(kind: str, folder: Path, **options: Any) -> Engine:
    source = st.source("s", st.memory(ROWS, schema=SCHEMA), ts="ts")
    query = st.Query("q", stream(source, kind).to(st.memory_sink(), name="out"), source.late.to(st.memory_sink()))
    return inprocess.run(query.plan(buckets=4), folder, Options(3), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_adds_up(tmp_path: Path, kind: str) -> None:
    engine = run(kind, tmp_path / "ckpt")
    accounts = engine.manifest.accounts
    assert accounts["source s"] == {"read": 8, "accepted": 5, "late": 2, "rejected": 1}
    assert accounts["sink sink"] == {"given": 2, "written": 2}
    assert any(name.startswith("exchange s: ") and counts["sent"] > 0 for name, counts in accounts.items())
    assert not list(imbalances(accounts))
    assert not verify(tmp_path / "ckpt").unaccounted


@pytest.mark.parametrize("kind", KINDS)
def test_an_accepted_row_that_came_after_its_time_is_found(tmp_path: Path, kind: str) -> None:
    """As if time had gone back: rows of the first window come once more when it is closed."""
    real = tasks.ingest

    def forgetful(source: Any, name: str, part: Any, read: Any, now: int, **more: Any) -> Any:
        return real(source, name, part, read, -(2**62), **more)  # nothing is late any more

    late = [row(1), row(2, "b"), PAUSE, row(30), row(31), PAUSE, row(1), row(60)]
    source = st.source("s", st.memory(late, schema=SCHEMA), ts="ts")
    query = st.Query("late", stream(source, kind).to(st.memory_sink(), name="out"))
    with patch.object(tasks, "ingest", forgetful):
        inprocess.run(query.plan(buckets=4), tmp_path / "late", Options(2))
    found = verify(tmp_path / "late")
    assert any(said.startswith("step step: ") and "came too late" in said for said in found.unaccounted)
    assert "rows that are not accounted for\nstep step: " in verification_text(found)


def test_rows_that_get_lost_on_the_way_are_missed(tmp_path: Path) -> None:
    real = tasks.instance_task

    def careless(plan: Any, epoch: Epoch, level: int, partition: int, items: Any) -> Any:
        blobs = [i for i in items if i[0] == level]
        return real(plan, epoch, level, partition, [i for i in items if i not in blobs[:1]])

    with patch.object(tasks, "instance_task", careless):
        engine = run("last", tmp_path / "ckpt")
    (said,) = imbalances(engine.manifest.accounts)
    assert said.startswith("exchange s: s → step: ")


def test_rows_that_a_source_skips_are_missed(tmp_path: Path) -> None:
    real = tasks.run_prefix

    def skipping(plan: Any, epoch: Any, name: str, instance: int, arrivals: Any) -> Any:
        cut = [replace(a, read=replace(a.read, rows=a.read.rows.slice(1))) for a in arrivals]
        return real(plan, epoch, name, instance, cut)

    with (
        patch.object(tasks, "run_prefix", skipping),
        pytest.raises(st.UserCodeError, match=r"step s \(source\): .* rows, but .* were announced"),
    ):
        run("last", tmp_path / "ckpt")


def test_an_old_checkpoint_begins_to_count_where_it_is(tmp_path: Path) -> None:
    run("sliding", tmp_path / "ckpt", between=lambda e: e.manifest.epoch < 1)
    checkpoint = Checkpoint(tmp_path / "ckpt")
    newest = checkpoint.latest()
    assert newest is not None
    checkpoint.root.joinpath(f"manifests/{newest.epoch:09d}").write_bytes(replace(newest, accounts={}).encode())
    accounts = run("sliding", tmp_path / "ckpt").manifest.accounts
    assert 0 < accounts["source s"]["read"] < 8
    assert not list(imbalances(accounts))
