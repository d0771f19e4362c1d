"""Sinks at work: the rows of an epoch arrive once, however often the epoch is published."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.sinks.publication import Publication, Publisher

SCHEMA = pl.Schema({"x": pl.Int64(), "y": pl.String()})


def publication(folder: Path, *parts: list[int], epoch: int = 7, suffix: str = "arrow") -> Publication:
    """Write the files that tasks write, one per part."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for i, xs in enumerate(parts):
        frame = pl.DataFrame({"x": xs, "y": [str(x) for x in xs]}, schema=SCHEMA)
        files.append(folder / f"out-{epoch}-{i}.{suffix}")
        if suffix == "arrow":
            frame.write_ipc(files[-1])
        else:
            frame.write_parquet(files[-1])
    return Publication("out", epoch, SCHEMA, tuple(files), tuple(map(len, parts)))


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_a_publication_is_read_whole(tmp_path: Path, suffix: str) -> None:
    assert publication(tmp_path, [1, 2], [3], suffix=suffix).frame()["x"].to_list() == [1, 2, 3]
    assert publication(tmp_path).frame().schema == SCHEMA


def test_every_sink_can_publish() -> None:
    sinks: list[Any] = [
        st.memory_sink(),
        st.console(),
        st.callback(print),
        st.parquet_sink("out"),
        st.spark_sink(print),
    ]
    assert all(isinstance(sink, Publisher) for sink in sinks)


def test_memory_keeps_epochs_apart_and_replaces_what_comes_again(tmp_path: Path) -> None:
    sink = st.memory_sink()
    sink.publish(publication(tmp_path, [1], epoch=0))
    sink.publish(publication(tmp_path, [2, 3], epoch=1))
    sink.publish(publication(tmp_path, [2, 3], epoch=1))
    assert sink.rows()["x"].to_list() == [1, 2, 3]
    assert pickle.loads(pickle.dumps(sink)).epochs == {}


def test_a_function_is_called_with_rows_and_epoch(tmp_path: Path) -> None:
    calls: list[tuple[list[int], int]] = []
    sink = st.callback(lambda rows, epoch: calls.append((rows["x"].to_list(), epoch)))
    sink.publish(publication(tmp_path, [1], [2]))
    sink.publish(publication(tmp_path, epoch=8))
    assert calls == [([1, 2], 7), ([], 8)]


def test_the_console_shows_epochs_with_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = st.console(rows=2)
    sink.publish(publication(tmp_path, epoch=6))
    assert capsys.readouterr().out == ""
    sink.publish(publication(tmp_path, list(range(100)), epoch=7))
    shown = capsys.readouterr().out
    assert shown.startswith("epoch 7, out: 100 rows\n")
    assert len(shown.splitlines()) < 12


# ── Parquet ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def content(folder: Path) -> list[int]:
    return pl.read_parquet(folder / "*.parquet")["x"].to_list()


def test_files_are_moved(tmp_path: Path) -> None:
    sink = st.parquet_sink(tmp_path / "out")
    given = publication(tmp_path / "outbox", [1, 2], [3], suffix="parquet")
    sink.publish(given)
    assert content(tmp_path / "out") == [1, 2, 3]
    assert not any(f.exists() for f in given.files)
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == [
        "part-000000007-0000.parquet",
        "part-000000007-0001.parquet",
    ]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_publishing_may_be_cut_short_anywhere(tmp_path: Path, moved: int) -> None:
    """The process dies after some files; the next start publishes the epoch again."""
    sink = st.parquet_sink(tmp_path / "out")
    given = publication(tmp_path / "outbox", [1, 2], [3], suffix="parquet")
    (tmp_path / "out").mkdir()
    for i in range(moved):
        os.replace(given.files[i], tmp_path / "out" / f"part-000000007-{i:04d}.parquet")
    sink.publish(given)
    sink.publish(given)
    assert content(tmp_path / "out") == [1, 2, 3]
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    """A replay may give a file of the same name with the same rows: the first one stays."""
    sink = st.parquet_sink(tmp_path / "out")
    sink.publish(publication(tmp_path / "outbox", [1], suffix="parquet"))
    before = (tmp_path / "out" / "part-000000007-0000.parquet").stat().st_mtime_ns
    sink.publish(publication(tmp_path / "outbox", [1], suffix="parquet"))
    assert (tmp_path / "out" / "part-000000007-0000.parquet").stat().st_mtime_ns == before
    assert content(tmp_path / "out") == [1]


def test_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.replace

    def replace(source: Any, target: Any) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    sink = st.parquet_sink(tmp_path / "out")
    sink.publish(publication(tmp_path / "outbox", [1, 2], [3], suffix="parquet"))
    assert content(tmp_path / "out") == [1, 2, 3]
    assert [f.name for f in (tmp_path / "out").iterdir() if f.suffix != ".parquet"] == []
    assert list((tmp_path / "outbox").iterdir()) == []


def test_an_epoch_without_rows_makes_no_file(tmp_path: Path) -> None:
    st.parquet_sink(tmp_path / "out").publish(publication(tmp_path))
    assert list((tmp_path / "out").iterdir()) == []


def test_other_errors_are_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OSError, match="exists"):
        st.parquet_sink(tmp_path / "out").publish(publication(tmp_path / "outbox", [1], suffix="parquet"))
