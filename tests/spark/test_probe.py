"""Executors that do not see the folders of a run are found out at the start, or by their first task (issue 11, 15)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import springtide as st
from springtide.runtime.spark import probe as module
from springtide.runtime.spark.probe import Look, Sighted, check_executors, probe, problem_of
from springtide.state.tiers import Tiers


def test_a_folder_is_looked_at_by_reading_and_writing(tmp_path: Path) -> None:
    (tmp_path / ".probe-word").write_text("word")
    assert problem_of(tmp_path, "word") is None
    assert [f.name for f in tmp_path.iterdir()] == [".probe-word"]
    assert problem_of(tmp_path / "elsewhere", "word") == "is not seen by an executor (No such file or directory)"
    (tmp_path / ".probe-word").write_text("another")
    assert problem_of(tmp_path, "word") == "is another folder for an executor"
    (seen,) = Look({str(tmp_path): "word"})(0, [1])
    assert seen.problem == "is another folder for an executor"


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".probe-word").write_text("word")

    def refuse(self: Path, text: str) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    assert problem_of(tmp_path, "word") == "cannot be written by an executor (Permission denied)"


def test_a_task_of_an_executor_that_came_later(tmp_path: Path) -> None:
    def stage(task: int, items: Iterable[Any]) -> Iterator[Any]:
        return iter([task, *items])

    told = r"not seen by an executor on .*; .*file system"
    with pytest.raises(st.CheckpointError, match=told):
        Sighted(stage, str(tmp_path))(1, [2])
    assert not list(tmp_path.iterdir()), "it makes no folder that nobody looks into"
    (tmp_path / "springtide.json").touch()
    assert list(Sighted(stage, str(tmp_path))(1, [2])) == [1, 2]


@pytest.mark.spark
def test_tasks_look_for_what_the_driver_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "ckpt", tmp_path / "memory"]
    probe(spark.sparkContext, folders, lambda: 1)
    check_executors(
        spark.sparkContext, Tiers(str(tmp_path / "nowhere")), st.Durability()
    )  # local mode: nothing to look at
    assert not (tmp_path / "nowhere").exists()
    assert [list(folder.iterdir()) for folder in folders] == [[], []], "nothing is left"
    monkeypatch.setattr(module, "_NAME", ".other-")  # the driver writes what tasks do not find
    look = Look({str(tmp_path / "ckpt"): "0"})
    monkeypatch.setattr(module, "Look", lambda words: look)
    told = re.escape(f"checkpoint {tmp_path / 'ckpt'} is not seen by an executor (No such file or directory) on ")
    with pytest.raises(st.CheckpointError, match=told):
        probe(spark.sparkContext, folders, lambda: 1)
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
    assert os.listdir(tmp_path / "ckpt") == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_cluster_that_starts_no_executor_is_told_of(
    count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = 0

    def executors() -> int:
        nonlocal asked
        asked += 1
        return count

    class Context:
        def getConf(self) -> dict[str, str]:  # noqa: N802
            return {"spark.executor.memory": "8g"}

    monkeypatch.setattr(module, "_UNHEARD", 0.0)
    told = ""
    with module._told(Context(), executors):  # type: ignore[arg-type]
        while not asked or (count == 0 and "\n" not in told):
            told += capsys.readouterr().err
            time.sleep(0.01)
    assert ("spark.executor.memory=8g" in told) == (count == 0)
