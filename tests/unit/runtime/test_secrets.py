"""What a source, a sink or a store was given for itself is seen nowhere else (issue 11, 14)."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import polars as pl
import pytest

import springtide as st
from springtide.cli.checkpoint import list_
from springtide.cli.history import history
from springtide.cli.state import state
from springtide.cli.status import status
from springtide.connectors import Outbox, ParquetFiles, Publication, Read, Secret, Sink, Slice, Source, Take
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.runtime.shipping import for_tasks
from springtide.runtime.status import status_of
from springtide.sources.memory import Memory
from springtide.state.checkpoint import Checkpoint
from springtide.state.stores import Store

SECRET = "hunter2-hunter2"
ROWS = pl.DataFrame({"ts": [0, 1_000_000, 2_000_000], "k": ["a", "b", "a"]}).with_columns(pl.col("ts").cast(st.TIME))


@dataclass(frozen=True, eq=False)
class Guarded(Source):
    """A source that needs a password."""

    inner: Memory
    password: Secret
    options: tuple[tuple[str, str], ...]
    positions: bool = True

    def schema(self) -> pl.Schema:
        return self.inner.schema()

    def describe(self) -> str:
        return "guarded"

    def read_all(self) -> Any:
        return self.inner.read_all()

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        return self.inner.take(position, limit, ts)

    def read(self, part: Slice) -> Read:
        assert self.password.reveal() == SECRET
        return self.inner.read(part)


@pytest.fixture
def query() -> st.Query:
    source = Guarded(st.memory(ROWS), Secret(SECRET), (("sasl.jaas.config", f"password={SECRET}"),))
    counts = st.source("guarded", source, ts="ts").aggregate(by="k", window=st.tumbling("2s"), n=st.count(), name="n")
    connection = {"password": SECRET}

    def publish(rows: Any, epoch: int) -> None:
        assert connection

    return st.Query("secret", counts.to(st.callback(publish), name="out"))


@pytest.mark.parametrize("every", ["epoch", "never"])
def test_no_secret_is_written_or_shown(query: st.Query, tmp_path: Path, every: str) -> None:
    shown = io.StringIO()
    durability = st.Durability(every, shared_memory=tmp_path / "memory" if every != "epoch" else None)
    options = Options(2, rows_per_epoch=1, durability=durability)
    root = tmp_path / "ckpt"
    engine = inprocess.run(query.plan(buckets=4), root, options)
    with contextlib.redirect_stdout(shown):
        print(query.explain(), query.explain(as_mermaid=True), options, durability, engine.manifest, engine.events)
        print(engine.snapshot, status_of(engine.manifest), engine.storage.tiers, engine.plan.graph)
        status(root), state(root), history(root), history(root, snapshots=True), list_(str(root))
    assert len(shown.getvalue()) > 1000
    assert SECRET not in shown.getvalue()
    written = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    assert len(written) > 5
    assert [str(f) for f, data in written.items() if SECRET.encode() in data] == []


def test_a_store_shows_no_secret(tmp_path: Path) -> None:
    address = f"s3://me:{SECRET}@bucket/ckpt?access_key=me&secret_key={SECRET}&session_token={SECRET}"
    durability = st.Durability("5s", backup=address, shared_memory=tmp_path)
    tiers = durability.tiers(Checkpoint(tmp_path / "ckpt"))
    told = (
        f"{durability} {durability!r} {Options(durability=durability)} {tiers} {tiers.backup} {Store.at(address).url}"
    )
    assert SECRET not in told
    assert "bucket/ckpt" in told


def test_tasks_that_do_not_read_get_no_source(query: st.Query) -> None:
    packing = pytest.importorskip("springtide.runtime.spark.packing")
    plan = query.plan(buckets=4)
    assert SECRET.encode() in packing.packed(plan, reads=True)
    later = packing.packed(plan, reads=False)
    unpacked = cloudpickle.loads(later)
    connector = unpacked.step("guarded").connector
    assert not hasattr(connector, "password")
    assert connector.schema() == plan.step("guarded").connector.schema()
    assert connector.positions is True
    with pytest.raises(NotImplementedError, match="reads no source"):
        connector.read_all()


class Vault(Sink):
    """A sink that needs a password; its tasks do not."""

    outbox: Outbox = ParquetFiles()  # type: ignore[assignment]

    def __init__(self) -> None:
        self.password = Secret(SECRET)

    def describe(self) -> str:
        return f"vault with {self.password}"

    def publish(self, publication: Publication) -> None:
        assert self.password.reveal() == SECRET


def test_of_a_sink_only_the_outbox_goes_to_tasks(tmp_path: Path) -> None:
    packing = pytest.importorskip("springtide.runtime.spark.packing")
    query = st.Query("vault", st.source("rows", st.memory(ROWS), ts="ts").to(Vault(), name="out"))
    shipped = for_tasks(query.plan(buckets=4))
    for reads in (True, False):
        packed = packing.packed(shipped, reads=reads)
        assert SECRET.encode() not in packed
        assert cloudpickle.loads(packed).step("out").connector.outbox == ParquetFiles()
    assert SECRET not in f"{query.explain()} {Vault().describe()}"


def test_a_source_that_cannot_travel_is_named() -> None:
    packing = pytest.importorskip("springtide.runtime.spark.packing")

    class Locked(Guarded):
        def __getstate__(self) -> dict[str, Any]:
            raise TypeError("cannot pickle a lock")

    source = Locked(st.memory(ROWS), Secret(SECRET), ())
    query = st.Query("locked", st.source("guarded", source, ts="ts").to(st.memory_sink()))
    with pytest.raises(st.QueryError, match=r"step guarded \(source\): .*cannot pickle a lock") as caught:
        packing.packed(query.plan(buckets=4), reads=True)
    assert SECRET not in str(caught.value)


def test_a_secret_of_the_environment_is_read_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret.env("VAULT_PASSWORD")
    with pytest.raises(st.SpringtideError, match="VAULT_PASSWORD is not set"):
        secret.reveal()
    monkeypatch.setenv("VAULT_PASSWORD", SECRET)
    assert secret.reveal() == SECRET
    assert SECRET not in f"{secret} {secret!r}"
    assert SECRET.encode() not in cloudpickle.dumps(secret)
