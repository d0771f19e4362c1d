"""`springtide history` says what was changed, why, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import Result

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.state.checkpoint import Checkpoint
from springtide.state.history import History
from springtide.state.instructions import Trigger

Run = Callable[..., Result]


@dataclass
class Script:
    """A policy that wants what is written, one thing after the other."""

    wishes: list[int]
    seen: list[int] = field(default_factory=list)

    def decide(self, snapshot: st.Snapshot, history: Sequence[st.Snapshot]) -> Sequence[st.Proposal]:
        if not self.wishes:
            return []
        trigger = Trigger("utilisation", 0.97, 0.9)
        return [st.Proposal("counts", "it is written", trigger, instances=self.wishes.pop(0))]


@pytest.fixture
def past(query: st.Query, tmp_path: Path) -> Path:
    """The policy wants 4 of 2 instances, then 9, which is over the limit, then nothing; by hand a bucket is moved."""

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 3:
            engine.reconfiguring.move("counts", [0], 3)
        return engine.manifest.epoch < 5

    elastic = st.Elastic(max=4, policy=Script([4, 9]), balancing=None, every=0, grace=0, confirmations=1)
    inprocess.run(query.plan(), tmp_path / "ckpt", Options(2, 100, elastic=elastic), between=between)
    return tmp_path / "ckpt"


def test_decisions(run: Run, past: Path) -> None:
    title, table, refused = run("history", past).stdout.split("\n\n")
    assert title == "query numbers, 2 decisions"
    head, first, why, second, reason = table.splitlines()
    assert head.split() == ["time", "subquery", "change", "buckets", "state", "took", "extra", "epoch"]
    assert first.split()[1:6] == ["counts", "2", "→", "4", "instances"]
    told = next(r for r in History(past).read("decisions") if "kind" in r)
    assert first.split()[6] == f"{len(told['moved'])}/256", "how many depends on how long each instance took"
    assert first.split()[-1] == "1"  # decided behind epoch 0
    assert why.strip() == "utilisation 0.97 > 0.9 – it is written"
    assert second.split()[1:4] == ["counts", "moved", "1/256"]
    assert reason.strip() == "asked for by hand"
    heading, columns, line = refused.splitlines()
    assert heading == "what was refused last"
    assert columns.split() == ["time", "subquery", "rule", "what", "and", "why"]
    assert line.split(maxsplit=3)[1:] == ["counts", "limit", "9 instances; it has at most 4"]


def test_the_last_ones(run: Run, past: Path) -> None:
    title, table, *_ = run("history", past, "--last", 1).stdout.split("\n\n")
    assert title == "query numbers, 2 decisions, the last 1"
    assert "moved" in table
    assert "2 → 4" not in table


def test_snapshots(run: Run, past: Path) -> None:
    title, table = run("history", past, "--snapshots").stdout.split("\n\n")
    head, *lines = table.splitlines()
    assert title == f"query numbers, {len(lines)} epochs"
    assert head.split() == ["time", "epoch", "took", "rows", "arriving", "backlog", "p50", "p95", "x", "counts"]
    assert [line.split()[1] for line in lines] == [str(i) for i in range(6)]
    assert [line.split()[-3] for line in lines] == ["2", "4", "4", "4", "4", "4"]
    assert len(run("history", past, "--snapshots", "--last", 2).stdout.split("\n\n")[1].splitlines()) == 3


def test_what_has_not_taken_effect(run: Run, past: Path) -> None:
    history = History(past)
    record = next(r for r in history.read("decisions") if "kind" in r)
    history.append("decisions", 1, record | {"id": "one"})
    history.append("decisions", 1, record | {"id": "two"})
    shown = run("history", past).stdout
    assert [word for word in shown.split() if word in ("overtaken", "waits")] == ["overtaken", "waits"]


def test_what_waited_for_executors(run: Run, past: Path) -> None:
    history = History(past)
    record = next(r for r in history.read("decisions") if "kind" in r)
    history.append("decisions", 1, record | {"id": "one", "waited": 8.25})
    assert run("history", past).stdout.count("it is written; it waited 8.25 s for executors") == 1


def test_a_past_of_nothing(run: Run, checkpoint: Callable[..., Path]) -> None:
    ckpt = checkpoint()
    assert run("history", ckpt).stdout == "query numbers, 0 decisions\n"
    assert Checkpoint(ckpt).latest() is not None
