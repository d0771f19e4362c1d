"""Parquet files in an object store: exactly once, whatever is killed at whichever request, and what readers see meanwhile."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.dataset as ds
import pytest
from pyarrow.fs import S3FileSystem

import springtide as st
from springtide.connectors import Lineage, Owner, Publication
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.sinks import records
from springtide.sinks.bucket import Bucket
from springtide.sinks.rolling import Layout
from springtide.state.names import MANIFESTS
from springtide.state.stores import Store
from springtide.testing import check_sink
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.sinks.kinds import ROWS, Died, InStore, Runs, query_of

OWNER = Owner("numbers", "out", Lineage("a" * 32), generation=1)
SCHEMA = pl.Schema({"x": pl.Int64(), "k": pl.Int64()})
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "roll": {"roll": "1h"},
    "small": {"roll": "1KB"},
    "folders": {"partition_by": "k"},
    "both": {"partition_by": "k", "roll": "1KB"},
}


@dataclass
class Mortal(Misbehaving):
    """A bucket whose user dies at the so-manieth request that changes something, before it or after it."""

    at: int | None = None
    after: bool = False

    def _call(self, verb: str, act: Callable[[], Any]) -> Any:
        if verb not in ("put", "create", "delete") or self.at is None:
            return super()._call(verb, act)
        self.at -= 1
        if self.at == 0 and not self.after:
            raise Died
        result = super()._call(verb, act)
        if self.at == 0:
            raise Died
        return result


@pytest.fixture
def bucket() -> Iterator[Mortal]:
    mortal = Mortal(trouble=0.0)
    with served(bucket=mortal):
        yield mortal


def files(bucket: Misbehaving) -> dict[str, list[int]]:
    """What a reader sees who takes every Parquet file that is there."""
    seen = {n: d for n, d in sorted(bucket.files.items()) if n.endswith(".parquet")}
    assert not [n for n in seen if "_springtide" in n], "a pattern over all folders finds only rows that are published"
    return {n: pl.read_parquet(io.BytesIO(d))["x"].to_list() for n, d in seen.items()}


def rows(bucket: Misbehaving) -> list[int]:
    return sorted(x for xs in files(bucket).values() for x in xs)


def published(writer: Bucket, outbox: Path, epochs: Sequence[int], clock: Callable[[], None] = lambda: None) -> None:
    for epoch in epochs:
        names = []
        for part in range(2):
            names.append(outbox / f"{epoch}-{part}.parquet")
            pl.DataFrame({"x": [10 * epoch + part], "k": [part]}, schema=SCHEMA).write_parquet(names[-1])
        writer.publish(Publication("out", epoch, SCHEMA, tuple(names), (1, 1)))
        clock()


# ── killed ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_request(tmp_path: Path, bucket: Mortal, layout: str, after: bool) -> None:
    """Nobody ever sees a row twice, nor one that was not committed; in the end all are there."""

    def sink() -> Any:
        source = st.source("n", st.memory([{"x": x, "k": x % 2} for x in range(ROWS)], schema=dict(SCHEMA)))
        return st.Query("killed", source.to(st.parquet_sink("fake://bucket/out", **LAYOUTS[layout]), name="out"))

    for at in range(1, 200):
        bucket.files.clear()
        bucket.at, bucket.after, runs = at, after, Runs(tmp_path / f"{at}")
        runs.run(sink())
        survived, bucket.at = bucket.at > 0, None
        seen = rows(bucket)
        assert len(set(seen)) == len(seen), at
        runs.run(sink())
        assert rows(bucket) == list(range(ROWS)), at
        if survived:
            break
    assert survived
    assert at > 5


@pytest.mark.parametrize("options", [o for o in LAYOUTS.values() if "partition_by" not in o], ids=str)
def test_the_suite_for_everybodys_sinks(options: dict[str, Any], bucket: Mortal) -> None:
    def read(name: str) -> pl.DataFrame:
        there = [d for n, d in sorted(bucket.files.items()) if n.startswith(f"{name}/") and n.endswith(".parquet")]
        return pl.concat([pl.read_parquet(io.BytesIO(d)) for d in there]) if there else pl.DataFrame()

    check_sink(lambda name: st.parquet_sink(f"fake://bucket/{name}", **options), read)


# ── stale runs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", [Layout(), Layout(seconds=1e9), Layout(("k",))], ids=["plain", "roll", "folders"])
def test_a_run_that_was_taken_over_shows_nothing(tmp_path: Path, bucket: Mortal, layout: Layout) -> None:
    store = Store.at("fake://bucket/out")
    old = Bucket(store, OWNER, layout)
    published(old, tmp_path, [0])
    new = Bucket(store, replace(OWNER, generation=2, epoch=0), layout)
    before = dict(bucket.files)
    with pytest.raises(st.SinkError, match=r"step out \(sink\): fake://bucket/out .*taken over by .*out .*; "):
        published(old, tmp_path, [1])
    assert {n for n in bucket.files if "held" not in n} == {n for n in before if "held" not in n}
    published(new, tmp_path, [1])
    new.close()
    assert rows(bucket) == [0, 1, 10, 11]


def test_a_run_that_sleeps_for_long_is_still_kept_out(
    tmp_path: Path, bucket: Mortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old records are removed, but not those that runs began with."""
    monkeypatch.setattr(records, "_KEPT", 3)
    store = Store.at("fake://bucket/out")
    old = Bucket(store, OWNER, Layout())
    published(old, tmp_path, [0])
    new = Bucket(store, replace(OWNER, generation=2, epoch=0), Layout())
    published(new, tmp_path, range(1, 40))
    there = [n for n in bucket.files if "_springtide" in n]
    assert len(there) < 20
    with pytest.raises(st.SinkError, match="was taken over"):
        published(old, tmp_path, [1])


def test_a_run_that_sleeps_before_its_claim_takes_no_place_from_newer_ones(
    tmp_path: Path, bucket: Mortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run before it has made the record that it wants to make, and newer ones have removed that."""
    monkeypatch.setattr(records, "_KEPT", 3)
    store, layout = Store.at("fake://bucket/out"), Layout(seconds=1e9)
    old = Bucket(store, OWNER, layout)
    published(old, tmp_path, [0])
    claim, newer = records.Records.claim, list[Bucket]()

    def late(self: records.Records, owner: Owner) -> bool:
        monkeypatch.setattr(records.Records, "claim", claim)
        published(old, tmp_path, [1])
        newer.append(Bucket(store, replace(OWNER, generation=3, epoch=1), layout))
        published(newer[0], tmp_path, range(2, 40))
        assert not store.exists(f"_springtide/{self.number + 1:09d}.json")
        return claim(self, owner)

    monkeypatch.setattr(records.Records, "claim", late)
    with pytest.raises(st.SinkError, match="later rows would come twice"):
        Bucket(store, replace(OWNER, generation=2, epoch=1), Layout()).close()
    assert rows(bucket) == []
    published(newer[0], tmp_path, [40])
    newer[0].close()
    assert rows(bucket) == sorted(10 * epoch + part for epoch in range(41) for part in range(2))


def test_held_files_that_nobody_recorded_are_removed(tmp_path: Path, bucket: Mortal) -> None:
    store, layout = Store.at("fake://bucket/out"), Layout(seconds=1e9)
    writer = Bucket(store, OWNER, layout)
    published(writer, tmp_path, [0])
    store.write("_springtide/held/000000001-0000-00000000.held", b"of an epoch that was never recorded")
    Bucket(store, replace(OWNER, generation=2, epoch=0), layout).close()
    assert not store.list("_springtide/held")
    assert rows(bucket) == [0, 1]


def test_epochs_of_a_second_make_a_file_a_minute(tmp_path: Path, bucket: Mortal) -> None:
    now = [1000.0]
    writer = Bucket(Store.at("fake://bucket/out"), OWNER, Layout(seconds=60, clock=lambda: now[0]))

    def tick() -> None:
        now[0] += 1

    published(writer, tmp_path, range(150), tick)
    assert len(files(bucket)) == 2
    writer.close()
    assert len(files(bucket)) == 3
    assert rows(bucket) == sorted(10 * e + p for e in range(150) for p in range(2))
    assert not [n for n in bucket.files if "/held/" in n]


def test_an_epoch_that_was_begun_in_one_way_is_not_finished_in_another(tmp_path: Path, bucket: Mortal) -> None:
    def run(**options: Any) -> None:
        source = st.source("n", st.memory([{"x": x, "k": x % 2} for x in range(ROWS)], schema=dict(SCHEMA)))
        sink = st.parquet_sink("fake://bucket/out", **options)
        Runs(tmp_path / "ckpt").run(st.Query("other", source.to(sink, name="out")))

    bucket.at = 6  # probe, claim, record: between the record of the first epoch and its file
    run()
    bucket.at = None
    if not rows(bucket):
        with pytest.raises(st.SinkError, match=r"epoch 0 was not written .*; start the query once with"):
            run(partition_by="k")
    run(roll="1h")
    assert rows(bucket) == list(range(ROWS))


# ── readers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_reads_by_the_records_sees_whole_epochs(tmp_path: Path, bucket: Mortal) -> None:
    """Files that an older record names are all there; only those of the newest may still be on their way."""
    store = Store.at("fake://bucket/out")
    writer = Bucket(store, OWNER, Layout())
    for epoch in range(3):
        bucket.at, bucket.after = 2, True  # the record, and the first of two files
        with pytest.raises(Died):
            published(writer, tmp_path, [epoch])
        bucket.at = None
        newest = json.loads(bucket.files[max(n for n in bucket.files if n.endswith(".json"))])
        on_their_way = {f"out/{name}" for name in newest["files"]}
        assert len(on_their_way) == 2
        assert sorted(x for n, xs in files(bucket).items() for x in xs if n not in on_their_way) == [
            10 * e + part for e in range(epoch) for part in range(2)
        ]
        published(writer, tmp_path, [epoch])
    writer.close()
    newest = json.loads(bucket.files[max(n for n in bucket.files if n.endswith(".json"))])
    assert newest["files"] == []
    assert newest["epoch"] == 2


def test_other_programs_read_it(tmp_path: Path, s3: str, s3_server: str) -> None:
    kinds = ["a b", "c/d", None, "é=1"]
    data = [{"ts": n * 1_000_000, "kind": kinds[n % 4], "day": date(2024, 5, 1 + n % 2), "x": n} for n in range(12)]
    schema = {"ts": pl.Int64, "kind": pl.String, "day": pl.Date, "x": pl.Int64}
    source = st.source("rows", st.memory(data, schema=schema), ts="ts")
    sinks = {
        name: st.parquet_sink(s3.replace("?", f"/{name}?"), partition_by=by)
        for name, by in (("plain", ()), ("parts", ["day", "kind"]))
    }
    query = st.Query("folders", *(source.to(sink, name=name) for name, sink in sinks.items()))
    inprocess.run(query.plan(buckets=2), tmp_path / "ckpt", Options(2, rows_per_epoch=5))
    expected = query.run_reference().rows("plain").select("x", "kind", "day").sort("x")
    options = {
        "aws_endpoint_url": f"http://{s3_server}",
        "aws_access_key_id": "tester",
        "aws_secret_access_key": "hush-hush",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    place = s3.partition("?")[0]
    found = pl.read_parquet(f"{place}/plain/*.parquet", storage_options=options)
    assert found.select("x", "kind", "day").sort("x").equals(expected)
    found = pl.read_parquet(f"{place}/parts/**/*.parquet", storage_options=options, hive_partitioning=True)
    assert found.select("x", "kind", "day").sort("x").equals(expected)
    system = S3FileSystem(
        access_key="tester", secret_key="hush-hush", endpoint_override=s3_server, scheme="http", region="us-east-1"
    )
    for name in sinks:
        path = f"{place.removeprefix('s3://')}/{name}"
        table = ds.dataset(path, filesystem=system, format="parquet", partitioning="hive").to_table()
        arrow = pl.from_arrow(table)
        assert isinstance(arrow, pl.DataFrame)
        assert arrow.sort("x")["kind"].to_list() == expected["kind"].to_list()
    back = st.parquet(s3.replace("?", "/plain?"))
    read = [r["x"] for r in back.read_all()["0"].to_dicts()]  # type: ignore[union-attr]
    assert sorted(read) == list(range(12)), "a query can read what another has written"
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and b"hush-hush" in f.read_bytes()]
    assert "hush-hush" not in f"{sinks!r} {sinks['plain'].describe()} {sinks['plain'].place}"


# ── refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_with_files_of_others_is_refused(tmp_path: Path, bucket: Mortal) -> None:
    Store.at("fake://bucket/out").write("theirs.parquet", b"?")
    before = dict(bucket.files)
    with pytest.raises(
        st.SinkError,
        match=r"step out \(sink\): .*fake://bucket/out has files .*\(theirs.parquet\)",
    ):
        Runs(tmp_path / "ckpt").run(query_of(st.parquet_sink("fake://bucket/out")))
    assert bucket.files == before


@pytest.mark.parametrize(
    ("folder", "by", "text", "problem"),
    [
        ("out", "kind", "a" * 300, "with 305 bytes; file systems, and some stores, allow 255; shorten 'kind' before"),
        ("o" * 800, "kind", "a" * 200, "with 205 bytes, .* 160 below ooo.*; shorten 'kind' before"),
        ("out", ["kind", *"abc"], "a" * 249, "below out; shorten 'kind' or 'a' or 'b' or 'c' before"),
    ],
    ids=["name", "key", "several names"],
)
def test_what_cannot_be_the_name_of_an_object_is_refused_while_nothing_is_committed(
    folder: str, by: Any, text: str, problem: str, tmp_path: Path, bucket: Mortal
) -> None:
    rows = pl.DataFrame({"kind": ["a", text], "a": text, "b": text, "c": text, "x": [1, 2]})
    query = st.Query(
        "long", st.source("rows", st.memory(rows)).to(st.parquet_sink(f"fake://bucket/{folder}", partition_by=by))
    )
    with pytest.raises(st.SinkError, match=problem):
        inprocess.run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_names_of_objects_that_just_fit_are_taken(tmp_path: Path, bucket: Mortal) -> None:
    rows = pl.DataFrame({"kind": ["a" * 250, "b" * 150], "x": [1, 2]})
    by = st.parquet_sink(f"fake://bucket/{'o' * 700}", partition_by="kind")
    inprocess.run(st.Query("fits", st.source("rows", st.memory(rows)).to(by)).plan(), tmp_path / "ckpt", Options(1))
    assert sorted(files(bucket).values()) == [[1], [2]]


def test_a_run_without_rows_leaves_the_place_to_others(tmp_path: Path, bucket: Mortal) -> None:
    Runs(tmp_path / "one").run(query_of(st.parquet_sink("fake://bucket/out")), epochs=0)
    Runs(tmp_path / "two").run(query_of(st.parquet_sink("fake://bucket/out")))
    assert rows(bucket) == list(range(ROWS))


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        (
            "hdfs://host/out",
            None,
            r"is in .* kind of store: hdfs://.*st.spark_sink",
        ),
        ("s3:///out", None, r"names no bucket"),
        (Path("s3://bucket/out"), None, r"is an address, not a path; give the address as"),
        ("out/", {"region": "r"}, r"out/ is a path, .*storage_options"),
    ],
)
def test_addresses_that_mean_nothing_are_refused_when_the_query_is_built(path: Any, options: Any, said: str) -> None:
    with pytest.raises(st.QueryError, match=rf"step \(parquet_sink\): .*{said}"):
        st.parquet_sink(path, storage_options=options)


def test_a_bucket_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path, s3: str) -> None:
    missing = InStore(tmp_path, s3.replace("bucket-", "missing-").replace("?", "/out?"))
    with pytest.raises(st.SinkError, match=r"step out \(sink\): s3://missing-.*[bB]ucket") as caught:
        Runs(tmp_path / "ckpt").run(query_of(missing.connector()))
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("layout", ["plain", "roll"])
def test_a_store_that_comes_back_without_its_last_epoch_gets_it_again(
    tmp_path: Path, bucket: Mortal, layout: str, kept: int
) -> None:
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(st.parquet_sink("fake://bucket/out", **LAYOUTS[layout])), kept)
    older = dict(bucket.files)
    runs.run(query_of(st.parquet_sink("fake://bucket/out", **LAYOUTS[layout])), 1)
    bucket.files.clear()
    bucket.files.update(older)
    runs.run(query_of(st.parquet_sink("fake://bucket/out", **LAYOUTS[layout])))
    assert rows(bucket) == list(range(ROWS))


def test_a_store_that_lost_more_is_refused(tmp_path: Path, bucket: Mortal) -> None:
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(st.parquet_sink("fake://bucket/out")), 1)
    older = dict(bucket.files)
    runs.run(query_of(st.parquet_sink("fake://bucket/out")), 2)
    bucket.files.clear()
    bucket.files.update(older)
    with pytest.raises(st.SinkError, match="though epoch 2 was published there: it has lost rows"):
        runs.run(query_of(st.parquet_sink("fake://bucket/out")))
    assert rows(bucket) == list(range(3))
