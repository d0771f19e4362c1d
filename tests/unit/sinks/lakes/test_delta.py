"""A Delta table, in a folder and in an object store, read by others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sinks.lakes import delta
from springtide.state.names import MANIFESTS
from springtide.testing import check_sink, compare
from tests.unit.runtime.crashing import SCHEMA, numbers
from tests.unit.sinks.kinds import PER_EPOCH, ROWS, Runs, query_of


def xs(path: Path | str, **options: Any) -> list[int]:
    return sorted(pl.read_delta(str(path), **options)["x"].to_list())


def test_it_passes_the_suite_for_sinks(tmp_path: Path) -> None:
    def read(name: str) -> pl.DataFrame:
        there = DeltaTable.is_deltatable(str(tmp_path / name))
        return pl.read_delta(str(tmp_path / name)) if there else pl.DataFrame(schema=SCHEMA)

    check_sink(lambda name: st.delta_sink(tmp_path / name), read)


def broken(monkeypatch: pytest.MonkeyPatch, method: str, *, late: bool) -> Callable[[], int]:
    """Let a method of Delta's library fail at its second call, before or after it has done its work."""
    calls = 0
    owner = DeltaTable if method == "create_write_transaction" else delta.DeltaTarget
    real = getattr(owner, method)

    def breaks(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != 2:
            return real(*arguments, **named)
        if late:
            real(*arguments, **named)
        raise OSError("the store is away")

    monkeypatch.setattr(owner, method, breaks)
    return lambda: calls


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("method", ["create_write_transaction", "_put", "entry"])
def test_rows_are_there_once_whatever_breaks(
    method: str, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = broken(monkeypatch, method, late=late)
    plan = query_of(st.delta_sink(tmp_path / "table")).plan()
    run(plan, tmp_path / "ckpt", Options(1, rows_per_epoch=PER_EPOCH, patience=600))
    assert calls() >= 2
    assert xs(tmp_path / "table") == list(range(ROWS))


def test_two_runs_at_once_only_one_writes(tmp_path: Path) -> None:
    query = query_of(st.delta_sink(tmp_path / "table"))

    def take_over() -> None:
        table = DeltaTable(tmp_path / "table")
        owner = table.metadata().configuration[delta.OWNER].replace('"generation": 1', '"generation": 2')
        table.alter.set_table_properties({delta.OWNER: owner}, raise_if_not_exists=False)

    with pytest.raises(st.SinkError, match=r"taken over by .*out .*'past'"):
        Runs(tmp_path / "ckpt").run(query, between=take_over)
    assert xs(tmp_path / "table") == [0, 1, 2]


NAIVE = numbers(ROWS).with_columns(naive=pl.col("ts").dt.replace_time_zone(None))


def naive(path: Path) -> st.Query:
    """A query whose table has times without a zone, which is a feature of its protocol."""
    return st.Query("past", st.source("rows", st.memory(NAIVE), ts="ts").to(st.delta_sink(path), name="out"))


def test_a_table_with_features_demands_no_more_of_its_readers(tmp_path: Path) -> None:
    """The library adds one with each change of the table's properties, and most readers do not know it."""
    path, runs = tmp_path / "table", Runs(tmp_path / "ckpt")
    for epochs in (1, 1, None):
        runs.run(naive(path), epochs=epochs)
    assert DeltaTable(path).protocol().reader_features == ["timestampNtz"]
    compare(pl.read_delta(str(path)), NAIVE)
    (back,) = st.delta(path).read_all().values()
    assert isinstance(back, pl.DataFrame)
    compare(back, NAIVE)
    with pytest.raises(st.SinkError, match="belongs to the sink out"):
        Runs(tmp_path / "other").run(naive(path))


def test_two_runs_at_once_only_one_writes_to_a_table_with_features(tmp_path: Path) -> None:
    path = tmp_path / "table"

    def take_over() -> None:
        field = DeltaTable(path).schema().fields[0]
        owner = str(field.metadata[delta.OWNER]).replace('"generation": 1', '"generation": 2')
        DeltaTable(path).alter.set_column_metadata(field.name, {delta.OWNER: owner})

    with pytest.raises(st.SinkError, match=r"taken over by .*out .*'past'"):
        Runs(tmp_path / "ckpt").run(naive(path), between=take_over)
    assert xs(path) == [0, 1, 2]


def test_a_table_that_gets_features_between_runs_goes_on(tmp_path: Path) -> None:
    """From then on the owner is found in a column, whatever the table's property still says."""
    path, runs = tmp_path / "table", Runs(tmp_path / "ckpt")
    query = query_of(st.delta_sink(path))
    runs.run(query, epochs=1)
    DeltaTable(path).alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    for epochs in (1, None):
        runs.run(query, epochs=epochs)
    assert DeltaTable(path).protocol().min_reader_version == 3
    assert xs(path) == list(range(ROWS))


def test_the_last_commit_was_deleted(tmp_path: Path) -> None:
    def forget() -> None:
        log = sorted((tmp_path / "table" / "_delta_log").glob("*.json"))
        log[-1].unlink()

    with pytest.raises(st.SinkError, match="was taken over by"):
        Runs(tmp_path / "ckpt").run(query_of(st.delta_sink(tmp_path / "table")), between=forget)


def test_a_commit_that_is_gone_at_the_next_start_is_made_again(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "ckpt")
    for _ in range(2):
        runs.run(query_of(st.delta_sink(tmp_path / "table")), epochs=1)
    sorted((tmp_path / "table" / "_delta_log").glob("*.json"))[-1].unlink()
    assert xs(tmp_path / "table") == list(range(PER_EPOCH))
    runs.run(query_of(st.delta_sink(tmp_path / "table")))
    assert xs(tmp_path / "table") == list(range(ROWS))


def test_small_files_are_merged_and_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_MANY", 4)
    source = st.source("numbers", st.memory(numbers(30), schema=SCHEMA), ts="ts")
    run(
        st.Query("small", source.to(st.delta_sink(tmp_path / "table"))).plan(),
        tmp_path / "ckpt",
        Options(2, rows_per_epoch=2),
    )
    table = DeltaTable(tmp_path / "table")
    assert len(table.file_uris()) <= 5
    assert xs(tmp_path / "table") == list(range(30))
    assert table.transaction_version(delta.EPOCH) >= 14


def test_a_partitioned_table_is_read_by_others(tmp_path: Path) -> None:
    query = query_of(st.delta_sink(tmp_path / "table", partition_by="key"))
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=5))
    assert DeltaTable(tmp_path / "table").metadata().partition_columns == ["key"]
    expected = numbers(ROWS)
    compare(pl.read_delta(str(tmp_path / "table")).select(expected.columns), expected)
    files = [f"'{uri}'" for uri in DeltaTable(tmp_path / "table").file_uris()]
    found = duckdb.sql(f"SELECT x FROM read_parquet([{', '.join(files)}]) ORDER BY x").fetchall()
    assert [x for (x,) in found] == list(range(ROWS))


def test_an_object_store(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = urlsplit(s3)
    known = {name: values[0] for name, values in parse_qs(address.query).items()}
    options = {
        "AWS_ENDPOINT_URL": f"http://{known['endpoint_override']}",
        "AWS_ACCESS_KEY_ID": known["access_key"],
        "AWS_SECRET_ACCESS_KEY": known["secret_key"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_CONDITIONAL_PUT": "etag",
    }
    path = f"s3://{address.netloc}/lake/numbers"
    sink = st.delta_sink(path, options=options)
    assert "hush" not in f"{sink!r} {sink.describe()} {sink.place}"
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink), epochs=2)
    runs.run(query_of(sink))
    assert xs(path, storage_options=options) == list(range(ROWS))

    real, contested = delta.DeltaTarget._add, f"{path}-contested"

    def late(target: Any, publication: Any) -> Any:
        found = real(target, publication)  # and before the commit, another run is faster
        table = DeltaTable(contested, storage_options=options)
        owner = table.metadata().configuration[delta.OWNER].replace('"generation": 1', '"generation": 2')
        table.alter.set_table_properties({delta.OWNER: owner}, raise_if_not_exists=False)
        return found

    monkeypatch.setattr(delta.DeltaTarget, "_add", late)
    with pytest.raises(st.SinkError, match="was taken over by"):
        Runs(tmp_path / "other").run(query_of(st.delta_sink(contested, options=options)))
    assert xs(contested, storage_options=options) == []


def test_names_that_differ_in_capitals_only_are_refused_when_the_query_is_built(tmp_path: Path) -> None:
    for schema in ({"x": pl.Int64, "X": pl.Int64}, {"s": pl.List(pl.Struct({"ü": pl.Int64, "Ü": pl.Int64}))}):
        with pytest.raises(st.QueryError, match="are the same name to Delta: rename one"):
            st.source("rows", st.memory(schema=schema)).to(st.delta_sink(tmp_path / "table"))


def test_a_table_whose_columns_are_changed_while_a_query_runs_gets_no_more_rows(tmp_path: Path) -> None:
    """When they are as they were, the rows come."""
    path, runs = tmp_path / "table", Runs(tmp_path / "ckpt")

    def change() -> None:
        rows = pl.read_delta(str(path)).with_columns(x=pl.col("x").cast(pl.String))
        write_deltalake(str(path), rows, mode="overwrite", schema_mode="overwrite")

    with pytest.raises(st.SinkError, match=r"has 'x' as .*, but rows have .*; cast it before this sink"):
        runs.run(query_of(st.delta_sink(path)), between=change)
    rows = pl.read_delta(str(path)).with_columns(x=pl.col("x").cast(pl.Int64))
    write_deltalake(str(path), rows, mode="overwrite", schema_mode="overwrite")
    runs.run(query_of(st.delta_sink(path)))
    assert xs(path) == list(range(ROWS))


@pytest.mark.parametrize("name", ["a b", "Århus", "q?", "h#", "br[1]*", "co:lon", "50%", '"'])
def test_a_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "table"
    Runs(tmp_path / name / "ckpt").run(query_of(st.delta_sink(path)))
    (back,) = st.delta(path).read_all().values()
    assert isinstance(back, pl.DataFrame)
    assert sorted(back["x"]) == list(range(ROWS))


def test_a_folder_whose_name_the_library_misreads_is_refused(tmp_path: Path) -> None:
    for make in (st.delta, st.delta_sink):
        with pytest.raises(
            st.QueryError, match=r"has %41 in its path, which Delta's library takes for another character"
        ):
            make(tmp_path / "per%41cent" / "table")


@pytest.mark.parametrize("by", [(), ("kind",)], ids=["whole", "partitioned"])
def test_names_and_values_may_have_any_characters(by: tuple[str, ...], tmp_path: Path) -> None:
    kinds = ["a/b", "%41", "a=b", " ", "..", "null", "None", "Århus", "\U0010ffff\n\t", '"', "\0", None]
    names = ["a.b", 'the "best"', "50% {off}", "Århus", "new\nline", "`"]
    rows = pl.DataFrame({"kind": kinds, **dict.fromkeys(names, range(12))})
    query = st.Query("names", st.source("rows", st.memory(rows)).to(st.delta_sink(tmp_path / "table", partition_by=by)))
    run(query.plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=5))
    compare(pl.read_delta(str(tmp_path / "table")).select(rows.columns), rows)


@pytest.mark.parametrize(
    ("columns", "by", "reason"),
    [
        ({"x": [1]}, (), "has no column 'ts'"),
        ({**numbers(1).to_dict(as_series=False), "x": ["1"]}, (), "has 'x' as"),
        (numbers(1).to_dict(as_series=False), ("key",), "is partitioned by nothing"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    columns: dict[str, Any], by: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    pl.DataFrame(columns).write_delta(str(tmp_path / "table"))
    with pytest.raises(st.SinkError, match=reason):
        Runs(tmp_path / "ckpt").run(query_of(st.delta_sink(tmp_path / "table", partition_by=by)))
    assert DeltaTable(tmp_path / "table").version() == 0


def test_what_it_cannot_hold_is_refused_when_the_query_is_built(tmp_path: Path) -> None:
    frame = numbers(1).with_columns(y=pl.lit(1, dtype=pl.UInt32))
    with pytest.raises(st.QueryError, match="'y' is UInt32, for which the table has no type"):
        st.source("rows", st.memory(frame), ts="ts").to(st.delta_sink(tmp_path / "table"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'kind' is '', which readers would take for null"),
        ("__HIVE_DEFAULT_PARTITION__", "'kind' is '__HIVE_DEFAULT_PARTITION__', which readers would take for null"),
        ("é" * 60, "with 365 bytes; file systems, and some stores, allow 255; shorten 'kind'"),
    ],
)
def test_values_that_no_partition_can_have_are_refused_while_nothing_is_committed(
    tmp_path: Path, text: str, problem: str
) -> None:
    rows = pl.DataFrame({"kind": ["a", text, None], "x": [1, 2, 3]})
    query = st.Query(
        "odd", st.source("rows", st.memory(rows)).to(st.delta_sink(tmp_path / "table", partition_by="kind"))
    )
    with pytest.raises(st.SinkError, match=problem):
        run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("é" * 60, "with 365 bytes; file systems, and some stores, allow 255"),
        ("é" * 40, "below lake/x.*; shorten 'kind' or 'town' before"),
    ],
)
def test_names_that_stores_do_not_allow_are_refused_too(tmp_path: Path, text: str, problem: str) -> None:
    sink = st.delta_sink("s3://bucket/lake/" + "x" * 500, partition_by=["kind", "town"])
    rows = pl.DataFrame({"kind": ["a", text, None], "town": [None, text, "b"], "x": [1, 2, 3]})
    with pytest.raises(st.SinkError, match=problem):
        sink.outbox.write(rows, tmp_path / "rows.parquet")
    assert not [*tmp_path.iterdir()]
    sink.outbox.write(rows.filter(pl.col("x") != 2), tmp_path / "rows.parquet")
