"""Sinks at work: the rows of an epoch arrive once, however often the epoch is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Publication, Sink

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


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_the_name_of_a_checkpoint_s_folder_is_no_pattern(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "ckpt[1]*"
    folder.mkdir()
    assert [*publication(folder, [1, 2], [3], suffix=suffix).frames()][1]["x"].to_list() == [3]


def test_every_sink_can_publish() -> None:
    sinks: list[Any] = [
        st.memory_sink(),
        st.console(),
        st.callback(print),
        st.spark_sink(print),
    ]
    assert all(isinstance(sink, Sink) and sink.incomplete() is None for sink in sinks)


def test_memory_keeps_epochs_apart_and_replaces_what_comes_again(tmp_path: Path) -> None:
    sink = st.memory_sink()
    sink.publish(publication(tmp_path, [1], epoch=0))
    sink.publish(publication(tmp_path, [2, 3], epoch=1))
    sink.publish(publication(tmp_path, [2, 3], epoch=1))
    assert sink.rows()["x"].to_list() == [1, 2, 3]


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
