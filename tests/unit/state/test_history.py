"""The past, a line at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from springtide.state import history
from springtide.state.history import History


def test_what_was_added_is_read_in_order_over_runs(tmp_path: Path) -> None:
    past = History(tmp_path)
    assert past.read("snapshots") == []
    for generation in (1, 2, 10):
        for i in range(3):
            past.append("snapshots", generation, {"run": generation, "i": i})
    past.append("decisions", 10, {"other": "kind"})
    assert [(r["run"], r["i"]) for r in past.read("snapshots")] == [(g, i) for g in (1, 2, 10) for i in range(3)]
    assert [(r["run"], r["i"]) for r in past.read("snapshots", last=4)] == [(2, 2), (10, 0), (10, 1), (10, 2)]
    assert past.read("snapshots", last=0) == []


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    past = History(tmp_path)
    past.append("decisions", 1, {"i": 0})
    (file,) = (tmp_path / "history").iterdir()
    file.write_bytes(file.read_bytes() + b'{"i": 1')
    assert past.read("decisions") == [{"i": 0}]


def test_old_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PART", 50)
    past = History(tmp_path)
    for i in range(200):
        past.append("snapshots", 1, {"i": i})
    assert len(list((tmp_path / "history").iterdir())) == history.KEEP
    found = [r["i"] for r in past.read("snapshots")]
    assert found == list(range(found[0], 200))
