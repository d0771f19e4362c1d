"""A Delta table as input: as it is, and as it grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import springtide as st
from springtide.connectors import Lineage, Owner
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import check_source
from tests.unit.runtime.crashing import numbers


def add(path: Path | str, first: int, count: int, **options: Any) -> None:
    rows = numbers(first + count).slice(first)
    write_deltalake(str(path), rows.to_arrow(), mode="append", **options)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three versions with a file each, merged by a fourth, and a version after that."""
    path = tmp_path / "table"
    for first in (0, 3, 5):
        add(path, first, 3 if first != 3 else 2)
    DeltaTable(path).optimize.compact()
    add(path, 8, 4)
    return path


def xs(source: Any) -> list[int]:
    return check_source(lambda: source, ts="ts")["x"].to_list()


def opened(source: Any) -> Any:
    return source.open(Owner("q", "numbers", Lineage("x"), 1, kind="source", schema=source.schema()))


def taken(feed: Any, position: Any, limit: int = 100) -> tuple[list[int], Any]:
    """What a take has, and where to go on."""
    take = feed.take(position, limit, "ts")
    rows = [x for part in take.slices for x in feed._source.read(part).rows.collect()["x"]]
    return rows, json.loads(json.dumps(take.position))


def test_it_passes_the_suite_for_sources(table: Path) -> None:
    assert sorted(xs(st.delta(table))) == list(range(12))
    assert check_source(lambda: st.delta(table, start=0, follow=True), rows=12, ts="ts")["x"].to_list() == list(
        range(12)
    )


def test_the_input_begins_where_it_is_told_to(table: Path) -> None:
    assert xs(st.delta(table, start=1)) == list(range(3, 12))
    assert xs(st.delta(table, start=3)) == list(range(8, 12)), "a version that only rearranges files brings nothing"
    feed = opened(st.delta(table, start="latest", follow=True))
    rows, position = taken(feed, None)
    assert rows == []
    add(table, 12, 2)
    assert taken(feed, position)[0] == [12, 13]


def test_a_table_that_grows_is_followed_by_several_runs(table: Path) -> None:
    feed = opened(st.delta(table, follow=True))
    rows, position = taken(feed, None, 10)
    assert feed.take(position, 1, "ts").backlog >= 1
    add(table, 12, 2)
    DeltaTable(table).optimize.compact()
    DeltaTable(table).create_checkpoint()
    add(table, 14, 1)
    more, position = taken(opened(st.delta(table, follow=True)), position)
    assert sorted([*rows, *more]) == list(range(15))
    assert taken(feed, position)[0] == []


def test_a_query_reads_what_our_sink_writes(tmp_path: Path) -> None:
    rows = st.source("numbers", st.memory(numbers(40)), ts="ts")
    run(
        st.Query("out", rows.to(st.delta_sink(tmp_path / "table", partition_by="key"))).plan(),
        tmp_path / "one",
        Options(2, rows_per_epoch=9),
    )
    sink = st.memory_sink()
    query = st.Query(
        "in", st.source("numbers", st.delta(tmp_path / "table", start=0), ts="ts", max_disorder="1h").to(sink)
    )
    run(query.plan(), tmp_path / "two", Options(2, rows_per_epoch=7))
    assert sink.rows().sort("x").select(numbers(1).columns).equals(numbers(40))


def test_partition_columns_come_from_the_log(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "x": [1, 2, 3],
            "day": pl.Series(["2024-05-01", None, "2024-05-02"]).str.to_date(),
            "town": ["a b%", "Århus", "c/d"],
            "n": pl.Series([1, 2, None], dtype=pl.Int32),
            "flag": [True, False, None],
        }
    )
    write_deltalake(str(tmp_path / "t"), frame.to_arrow(), partition_by=["day", "town", "n", "flag"])
    for start in (None, 0):
        found = check_source(lambda start=start: st.delta(tmp_path / "t", start=start), rows=3)  # type: ignore[misc]
        assert found.sort("x").equals(frame)


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def delete(table: Path) -> None:
    DeltaTable(table).delete("x = 9")


def overwrite(table: Path) -> None:
    write_deltalake(str(table), numbers(2).to_arrow(), mode="overwrite")


def new_column(table: Path) -> None:
    rows = numbers(1).with_columns(y=pl.lit(1))
    write_deltalake(str(table), rows.to_arrow(), mode="append", schema_mode="merge")


def lost_log(table: Path) -> None:
    add(table, 12, 1)
    add(table, 13, 1)
    DeltaTable(table).create_checkpoint()
    for number in range(6):  # as a table does that cleans up its log
        (table / "_delta_log" / f"{number:020d}.json").unlink()


def anew(table: Path) -> None:
    import shutil

    shutil.rmtree(table)
    add(table, 0, 1)


def with_vector(table: Path) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
    action = {"add": {"path": "a.parquet", "partitionValues": {}, "dataChange": True, "deletionVector": vector}}
    (table / "_delta_log" / f"{5:020d}.json").write_text(json.dumps(action))


def with_feature(table: Path) -> None:
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]}}
    (table / "_delta_log" / f"{5:020d}.json").write_text(json.dumps(action))


@pytest.mark.parametrize(
    ("change", "reason", "again"),
    [
        (delete, "version 5 removes the rows of 1 file", False),
        (overwrite, "version 5 removes the rows of 2 files", False),
        (new_column, "has changed at version 5: it adds the column 'y'", False),
        (lost_log, "has lost version 5 of its log", False),
        (anew, "is not the one that was read up to version 4", True),
        (with_vector, "version 5 has rows deleted by a deletion vector", False),
        (with_feature, "requires catalogManaged of its readers from version 5 on", False),
    ],
)
def test_what_is_not_rows_that_come_ends_the_run(
    change: Callable[[Path], None], reason: str, again: bool, table: Path
) -> None:
    feed = opened(st.delta(table, follow=True))
    _, position = taken(feed, None)
    change(table)
    if again:
        feed = opened(st.delta(table, follow=True))
    with pytest.raises(st.SpringtideError, match=f"step numbers .source.: Delta table .*{reason}"):
        taken(feed, position)


def test_versions_that_change_rows_are_passed_over_and_told(table: Path) -> None:
    feed = opened(st.delta(table, follow=True, changes="skip"))
    _, position = taken(feed, None)
    delete(table)
    add(table, 20, 1)
    take = feed.take(position, 100, "ts")
    assert "version 5 removes the rows of 1 file" in take.notes[0]
    assert taken(feed, position)[0] == [20]


def test_columns_that_came_later_are_null_before(table: Path) -> None:
    new_column(table)
    found = check_source(lambda: st.delta(table, start=0), rows=13, ts="ts")
    assert found["y"].to_list() == [None] * 12 + [1]


def test_a_file_that_is_gone_is_said_to_be_lost(table: Path) -> None:
    feed = opened(st.delta(table, start=0))
    take = feed.take(None, 3, "ts")
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(st.SpringtideError, match=r"lost .*parquet.* version 0.*restore"):
        st.delta(table).read(take.slices[0])
    with pytest.raises(st.SpringtideError, match=r"lost .*version 1.*2 rows.*restore"):
        feed.take(take.position, 10, "ts")


def test_a_table_that_cannot_be_read_is_refused_when_the_query_is_built(tmp_path: Path) -> None:
    with pytest.raises(st.QueryError, match=r"Delta table .* does not exist"):
        st.source("numbers", st.delta(tmp_path / "none"), ts="ts")
    with pytest.raises(st.QueryError, match="start=-1"):
        st.delta(tmp_path, start=-1)


def test_an_object_store(s3: str) -> None:
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
    for first in (0, 3):
        add(path, first, 3, storage_options=options)
    source = st.delta(path, start=0, options=options)
    assert check_source(lambda: source, rows=6, ts="ts", secrets=("hush-hush",))["x"].to_list() == list(range(6))


def test_windows_that_are_open_at_the_end_are_given(table: Path, tmp_path: Path) -> None:
    sink = st.memory_sink()
    counts = st.source("rows", st.delta(table), ts="ts", max_disorder="1m").aggregate(
        window=st.tumbling("1h"), n=st.count(), name="n"
    )
    query = st.Query("counted", counts.to(sink, name="out"))
    assert run(query.plan(buckets=8), tmp_path / "ckpt", Options(2, rows_per_epoch=5)).manifest.ended
    assert sink.rows()["n"].to_list() == [12]
