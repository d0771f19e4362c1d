"""Addresses of other file systems are never taken for folders: they are refused, with what to do, and nothing is made (issue 11, 15)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import springtide as st
from springtide import state
from springtide.cli.app import app
from springtide.query.places import local, scheme_of
from springtide.state.checkpoint import Checkpoint
from springtide.state.stores import Store

ADDRESS = "s3://key:secret@bucket/folder?secret_key=secret"
SCHEMA = {"ts": st.TIME, "x": pl.Int64}


@pytest.fixture(autouse=True)
def nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert [f.name for f in tmp_path.iterdir() if ":" in f.name] == []


@pytest.mark.parametrize("written", [ADDRESS, Path(ADDRESS)], ids=["text", "path"])
@pytest.mark.parametrize(
    ("take", "hint"),
    [
        (lambda a: st.Durability("5s", shared_memory=a), "backup="),
        (lambda a: st.Durability(cache=a), "a disk of each node"),
    ],
    ids=["memory", "cache"],
)
def test_an_address_is_no_folder(take: Callable[[Any], Any], hint: str, written: str | Path) -> None:
    with pytest.raises(st.SpringtideError, match="of a mounted file system") as caught:
        take(written)
    assert hint in str(caught.value)
    assert "s3://bucket/folder" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("written", ["hdfs://key:secret@bucket/folder", Path(ADDRESS)], ids=["unknown", "path"])
@pytest.mark.parametrize(
    ("take", "hint"),
    [
        (lambda a: st.parquet_sink(a), "st.spark_sink"),
        (lambda a: st.parquet(a), "st.spark reads"),
        (lambda a: st.json(a, schema=SCHEMA), "st.spark reads"),
        (lambda a: st.csv(a, schema=SCHEMA), "st.spark reads"),
    ],
    ids=["parquet_sink", "parquet", "json", "csv"],
)
def test_sources_and_sinks_take_addresses_that_are_known(
    take: Callable[[Any], Any], hint: str, written: str | Path
) -> None:
    with pytest.raises(st.QueryError) as caught:
        take(written)
    assert "kind of store: hdfs://" in str(caught.value) or "as a string" in str(caught.value)
    assert hint in str(caught.value) or isinstance(written, Path)
    assert "://bucket/folder" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["hdfs://key:secret@host/folder", "ftp://host/folder", "dbfs:/mnt/x"])
def test_a_query_is_refused_before_anything_is_started(address: str) -> None:
    query = st.Query("q", st.source("s", st.memory([], schema=SCHEMA), ts="ts").to(st.memory_sink()))
    for more in ({}, {"savepoint": "ckpt/savepoints/one"}):
        with pytest.raises(st.CheckpointError, match="kind of store") as caught:
            query.start(None, checkpoint=address, **more)
        assert "secret" not in str(caught.value)


def test_a_store_is_named_by_text() -> None:
    with pytest.raises(st.CheckpointError, match="is an address, not a path; give the address as"):
        Store.at(Path(ADDRESS))
    with pytest.raises(st.CheckpointError, match="is an address, not a path"):
        state.backup("ckpt", Path(ADDRESS))


@pytest.mark.parametrize("command", [["status"], ["state"], ["history"], ["stop"], ["scale", "STEP", "2"]])
def test_the_command_line_refuses_it_too(command: list[str]) -> None:
    done = CliRunner().invoke(app, [command[0], "hdfs://host/folder", *command[1:]])
    told = done.output + str(done.exception)
    assert done.exit_code
    assert "hdfs://host/folder is in an unknown kind of store" in " ".join(told.split())


def test_an_address_of_a_mounted_file_system_is_a_path(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/a%20b"
    assert Checkpoint(address).root == Checkpoint(Path(address)).root == tmp_path / "a b"
    assert Store.at(address).local == tmp_path / "a b"
    assert st.parquet_sink(address).path == str(tmp_path / "a b")
    assert st.parquet(address, schema=SCHEMA).path == str(tmp_path / "a b")
    assert local("file://elsewhere/a") is None


@pytest.mark.parametrize("path", ["out", "/out", "./s3:/out", "a:b/c", "C:", "x:/y", "2024-01-01T10:00/x", "s3", ":/x"])
def test_a_path_stays_a_path(path: str) -> None:
    assert scheme_of(path) is None
    assert local(path) == Path(path)
