"""Places that cannot be used are refused before anything starts, with what is wrong: for the checkpoint, its backup, a savepoint, sources and sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Options
from springtide.runtime.identity import begin_from
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served

COLUMNS = {"x": pl.Int64}


def run(
    tmp_path: Path, checkpoint: str = "", source: str = "", sink: str = "", backup: str = "", savepoint: str = ""
) -> None:
    """Run a query with something of it at an address; all else is fine."""
    rows = st.source("rows", st.parquet(source, schema=COLUMNS) if source else st.memory([{"x": 1}], schema=COLUMNS))
    out = st.parquet_sink(sink) if sink else st.memory_sink()
    plan = st.Query("refused", rows.to(out, name="out")).plan(buckets=2)
    place = checkpoint or tmp_path / "ckpt"
    if savepoint:
        begin_from(savepoint, plan, place)
    durability = Durability(backup=backup or None, cache=tmp_path / "cache")
    inprocess.run(plan, place, Options(1, durability=durability))


PLACES: dict[str, Callable[[Path, str], None]] = {
    "checkpoint": lambda folder, address: run(folder, checkpoint=address),
    "backup": lambda folder, address: run(folder, backup=address),
    "savepoint": lambda folder, address: run(folder, savepoint=address),
    "source": lambda folder, address: run(folder, source=address),
    "sink": lambda folder, address: run(folder, sink=address),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refused(folder: Path, place: str, address: str, said: str) -> None:
    """It is refused with these words, no secret among them, and nothing was begun."""
    with pytest.raises(st.SpringtideError, match=said) as caught:
        PLACES[place](folder, address)
    assert not isinstance(caught.value, st.UnavailableError), "it is not waited for"
    assert "hush-hush" not in str(caught.value)
    assert not [f for f in (folder / "ckpt").rglob("manifests/*") if f.is_file()]
    assert [f.name for f in folder.iterdir() if ":" in f.name] == [], "no folder with the name of an address"


def test_a_kind_of_store_that_nobody_knows(tmp_path: Path, place: str) -> None:
    refused(
        tmp_path,
        place,
        "hdfs://me:hush-hush@host/x",
        r"hdfs://host.* .*kind of store: hdfs://; use",
    )


def test_an_address_without_a_bucket(tmp_path: Path, place: str) -> None:
    refused(tmp_path, place, "s3:///x", r"names no bucket; write it like s3://BUCKET/FOLDER")


def test_a_bucket_that_is_not_there(tmp_path: Path, place: str, s3: str) -> None:
    refused(
        tmp_path,
        place,
        s3.replace("s3://bucket-", "s3://no-bucket-").replace("?", "/x?"),
        r"s3://no-bucket-.*[Bb]ucket",
    )


def test_credentials_that_are_missing(
    tmp_path: Path, place: str, s3: str, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    address = f"{s3.partition('?')[0]}/x?endpoint_override={s3_server}&scheme=http"
    refused(tmp_path, place, address, r"there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or")


@dataclass
class Shut(Misbehaving):
    """A bucket that may be read, and not be written."""

    def put(self, path: str, data: bytes | Path) -> None:
        raise PermissionError("403 AccessDenied")

    def create(self, path: str, data: bytes) -> None:
        raise PermissionError("403 AccessDenied")

    def copy(self, path: str, to: str) -> None:
        raise PermissionError("403 AccessDenied")

    def delete(self, paths: Sequence[str]) -> None:
        raise PermissionError("403 AccessDenied")


@pytest.mark.parametrize("place", ["checkpoint", "backup", "sink"])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    with served(bucket=Shut(trouble=0.0)):
        refused(tmp_path, place, "fake://bucket/x", r"fake://bucket/x cannot write .*: 403 AccessDenied; check that")
        assert Store.at("fake://bucket/x").list() == []
