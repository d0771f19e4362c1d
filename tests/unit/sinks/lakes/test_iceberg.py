"""An Iceberg table, in a folder and in an object store, with a catalog in SQLite; read by others."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sinks.lakes import iceberg
from springtide.state.names import MANIFESTS
from springtide.testing import check_sink, compare
from tests.unit.runtime.crashing import SCHEMA, numbers
from tests.unit.sinks.kinds import PER_EPOCH, ROWS, Runs, query_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}


def sink(folder: Path, table: str = "lake.numbers", **options: Any) -> Any:
    return st.iceberg_sink(table, catalog=catalog(folder), **options)


def found(folder: Path, table: str = "lake.numbers") -> Table:
    return load_catalog("default", **catalog(folder)).load_table(table)


def xs(folder: Path) -> list[int]:
    return sorted(found(folder).scan().to_arrow()["x"].to_pylist())


def test_it_passes_the_suite_for_sinks(tmp_path: Path) -> None:
    def read(name: str) -> pl.DataFrame:
        try:
            return pl.DataFrame(found(tmp_path, f"lake.{name}").scan().to_arrow())
        except NoSuchTableError:
            return pl.DataFrame(schema=SCHEMA)

    check_sink(lambda name: sink(tmp_path, f"lake.{name}"), read)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("method", ["commit_table", "_put", "load_table"])
def test_rows_are_there_once_whatever_breaks(
    method: str, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of the catalog, or the bringing of a file, fails, before or after it has done its work."""
    owner: Any = iceberg if method == "_put" else SqlCatalog
    real, calls = getattr(owner, method), 0

    def breaks(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls not in (3, 9):
            return real(*arguments, **named)
        if late:
            real(*arguments, **named)
        raise OSError("the catalog is away")

    monkeypatch.setattr(owner, method, breaks)
    run(query_of(sink(tmp_path)).plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=PER_EPOCH, patience=600))
    monkeypatch.undo()
    assert calls >= 3
    assert xs(tmp_path) == list(range(ROWS))


def test_two_runs_at_once_only_one_writes(tmp_path: Path) -> None:
    def take_over() -> None:
        table = found(tmp_path)
        summary = table.current_snapshot().summary.additional_properties  # type: ignore[union-attr]
        with table.transaction() as change:
            change.update_snapshot({**summary, "springtide.generation": "2"}).fast_append().commit()

    with pytest.raises(st.SinkError, match=r"taken over by .*out .*'past'"):
        Runs(tmp_path / "ckpt").run(query_of(sink(tmp_path)), between=take_over)
    assert xs(tmp_path) == [0, 1, 2]


def test_a_commit_that_comes_too_late_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits between our look and our commit: it is looked at again, and both have their rows."""
    real, calls = iceberg.IcebergTarget._commit, 0

    def commit(target: Any, table: Any, files: list[str], after: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            found(tmp_path).append(numbers(1).with_columns(x=pl.lit(99, dtype=pl.Int64)).to_arrow())
        real(target, table, files, after)

    monkeypatch.setattr(iceberg.IcebergTarget, "_commit", commit)
    Runs(tmp_path / "ckpt").run(query_of(sink(tmp_path)))
    assert calls > 5
    assert xs(tmp_path) == [*range(ROWS), 99]


def test_the_last_snapshot_was_taken_back(tmp_path: Path) -> None:
    def forget() -> None:
        table = found(tmp_path)
        newest = table.current_snapshot()
        assert newest is not None
        assert newest.parent_snapshot_id is not None
        table.manage_snapshots().rollback_to_snapshot(newest.parent_snapshot_id).commit()

    with pytest.raises(st.SinkError, match="was taken over by"):
        Runs(tmp_path / "ckpt").run(query_of(sink(tmp_path)), between=forget)


def test_nobody_knows_whose_rows_there_are(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink(tmp_path)), epochs=2)
    cat = load_catalog("default", **catalog(tmp_path))
    cat.drop_table("lake.numbers")
    cat.create_table("lake.numbers", numbers(1).to_arrow().schema).append(numbers(1).to_arrow())
    with pytest.raises(st.SinkError, match="unknown whether those of epoch 1"):
        runs.run(query_of(sink(tmp_path)))


@pytest.mark.parametrize("by", [(), ("key",)])
def test_small_files_are_merged_and_rows_stay(
    by: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "_MANY", 5)
    source = st.source("numbers", st.memory(numbers(30), schema=SCHEMA), ts="ts")
    query = st.Query("small", source.to(sink(tmp_path, partition_by=by)))
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=2))
    files = list(found(tmp_path).scan().plan_files())
    assert len(files) <= 8 + 2 * len(by)
    assert xs(tmp_path) == list(range(30))


@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")  # how Polars would plan it faster
def test_a_partitioned_table_is_read_by_others(tmp_path: Path) -> None:
    run(query_of(sink(tmp_path, partition_by="key")).plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=5))
    table, expected = found(tmp_path), numbers(ROWS)
    assert [field.name for field in table.spec().fields] == ["key"]
    compare(pl.scan_iceberg(table).collect().select(expected.columns), expected)
    one = numbers(ROWS)["key"][0]
    only = table.scan(row_filter=f"key == '{one}'").to_arrow()
    assert sorted(only["x"].to_pylist()) == expected.filter(key=one)["x"].sort().to_list()


def test_an_object_store(tmp_path: Path, s3: str) -> None:
    address = urlsplit(s3)
    known = {name: values[0] for name, values in parse_qs(address.query).items()}
    properties = {
        **catalog(tmp_path),
        "warehouse": f"s3://{address.netloc}/lake",
        "s3.endpoint": f"http://{known['endpoint_override']}",
        "s3.access-key-id": known["access_key"],
        "s3.secret-access-key": known["secret_key"],
        "s3.region": "us-east-1",
    }
    made = st.iceberg_sink("lake.numbers", catalog=properties, partition_by="key")
    assert "hush" not in f"{made!r} {made.describe()} {made.place}"
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(made), epochs=2)
    runs.run(query_of(made))
    table = load_catalog("default", **properties).load_table("lake.numbers")
    assert sorted(table.scan().to_arrow()["x"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize(
    ("frame", "by", "reason"),
    [
        (numbers(1).drop("ts"), (), "has no column 'ts'"),
        (numbers(1).cast({"x": pl.String}), (), "has 'x' as string, but rows have Int64"),
        (numbers(1), ("key",), "is partitioned by nothing"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    frame: pl.DataFrame, by: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    cat = load_catalog("default", **catalog(tmp_path))
    cat.create_namespace("lake")
    cat.create_table("lake.numbers", frame.to_arrow().schema)
    with pytest.raises(st.SinkError, match=reason):
        Runs(tmp_path / "ckpt").run(query_of(sink(tmp_path, partition_by=by)))
    assert found(tmp_path).current_snapshot() is None


def test_what_it_cannot_hold_is_refused_when_the_query_is_built(tmp_path: Path) -> None:
    frame = numbers(1).with_columns(y=pl.lit(1, dtype=pl.UInt32))
    with pytest.raises(st.QueryError, match="'y' is UInt32, for which the table has no type"):
        st.source("rows", st.memory(frame), ts="ts").to(sink(tmp_path))
    with pytest.raises(st.QueryError, match="'numbers' does not name a table in a namespace"):
        sink(tmp_path, "numbers")


def test_columns_that_are_one_to_it_are_refused_when_the_query_is_built(tmp_path: Path) -> None:
    stream = st.source("rows", st.memory(schema={"a": pl.Struct({"b": pl.Int64}), "a.b": pl.Int64}))
    with pytest.raises(st.QueryError, match=r"'a\.b' would be .* two columns or fields.*: rename one"):
        stream.to(sink(tmp_path))


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("y", [2**62]).cast(st.TIME),
        pl.Series("y", [253_402_300_800_000_000]).cast(pl.Datetime("us")),
        pl.Series("y", [2_932_897], dtype=pl.Int32).cast(pl.Date),
        pl.Series("y", [[2_932_897]], dtype=pl.List(pl.Int32)).cast(pl.List(pl.Date)),
    ],
    ids=["in no calendar", "a late time", "a late day", "a late day in a list"],
)
def test_times_that_python_has_none_for_are_refused_while_nothing_is_committed(
    column: pl.Series, tmp_path: Path
) -> None:
    query = st.Query("far", st.source("rows", st.memory(pl.DataFrame([column]))).to(sink(tmp_path)))
    with pytest.raises(st.SinkError, match=r"'y' has a year before 1 or after 9999.*; change it before this sink"):
        run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_a_table_whose_columns_are_changed_while_a_query_runs_gets_no_more_rows(tmp_path: Path) -> None:
    """When they are as they were, the rows come."""
    runs = Runs(tmp_path / "ckpt")

    def rename(name: str, to: str) -> None:
        with found(tmp_path).update_schema() as change:
            change.rename_column(name, to)

    with pytest.raises(st.SinkError, match="has no column 'x'"):
        runs.run(query_of(sink(tmp_path)), between=lambda: rename("x", "n"))
    rename("n", "x")
    runs.run(query_of(sink(tmp_path)))
    assert xs(tmp_path) == list(range(ROWS))


@pytest.mark.parametrize("by", [(), ("kind",)], ids=["whole", "partitioned"])
def test_names_and_values_may_have_any_characters(by: tuple[str, ...], tmp_path: Path) -> None:
    kinds = ["a/b", "%41", "a=b", " ", "", "null", "None", "Århus", "\U0010ffff\n\t", '"', "..", None]
    names = ["a.b", 'the "best"', "50% {off}", "Århus", "new\nline", "`"]
    rows = pl.DataFrame({"kind": kinds, **dict.fromkeys(names, range(12))})
    query = st.Query("names", st.source("rows", st.memory(rows)).to(sink(tmp_path, partition_by=by)))
    run(query.plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=5))
    compare(pl.DataFrame(found(tmp_path).scan().to_arrow()).select(rows.columns).cast(rows.schema), rows)  # type: ignore[arg-type]


def test_a_second_start_finds_the_types_that_the_first_one_made(tmp_path: Path) -> None:
    frame = numbers(4).with_columns(small=pl.lit(1, dtype=pl.Int8), many=pl.lit([1], dtype=pl.List(pl.Int16)))
    query = st.Query("types", st.source("rows", st.memory(frame), ts="ts").to(sink(tmp_path), name="out"))
    runs = Runs(tmp_path / "ckpt")
    runs.run(query, epochs=1)
    runs.run(query)
    assert xs(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["a" * 300, "é" * 60, "b" * 4095], ids=["long", "longer when escaped", "very long"])
def test_long_texts_to_partition_by(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their beginnings are the same; small files with them are merged, too."""
    monkeypatch.setattr(iceberg, "_MANY", 4)
    rows = pl.DataFrame({"kind": [f"{text}{n % 2}" for n in range(12)], "x": range(12)})
    query = st.Query("long", st.source("rows", st.memory(rows)).to(sink(tmp_path, partition_by="kind")))
    run(query.plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=3))
    compare(pl.DataFrame(found(tmp_path).scan().to_arrow()).cast(rows.schema), rows)  # type: ignore[arg-type]
    assert found(tmp_path).scan(f"kind = '{text}1'").to_arrow().num_rows == 6
    assert any("merged" in str(f.file.file_path) for f in found(tmp_path).scan().plan_files())


def test_texts_that_are_too_long_to_partition_by_are_refused(tmp_path: Path) -> None:
    rows = pl.DataFrame({"kind": ["b" * 4097], "x": [1]})
    query = st.Query("long", st.source("rows", st.memory(rows)).to(sink(tmp_path, partition_by="kind")))
    with pytest.raises(st.SinkError, match=r"'kind' has a text of more than 4096 bytes.*; shorten 'kind'"):
        run(query.plan(), tmp_path / "ckpt", Options(1))
