"""What tasks refuse to give to a topic, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest

import springtide as st
from springtide.topics.encoding import encoded
from springtide.topics.outbox import RecordFiles
from springtide.topics.values import parser

LIMIT = {"message.max.bytes": "2000"}


def outbox(**options: Any) -> RecordFiles:
    made = st.kafka_sink("localhost:9092", "t", config=LIMIT, **options).outbox
    assert isinstance(made, RecordFiles)
    return made


@pytest.mark.parametrize(
    "rows",
    [
        pl.DataFrame({"value": ["x", "y" * 1800]}),
        pl.DataFrame({"value": ["\n" * 1000]}),
        pl.DataFrame({"value": [b"\x00" * 1500]}),
        pl.DataFrame({"value": [[*range(600)], None, []]}),
        pl.DataFrame({"value": [[{"b": "x" * 600}] * 3]}),
        pl.DataFrame({"c" * 1800: [1]}),
        pl.DataFrame({"value": [{"c" * 1800: 1}]}),
        pl.DataFrame({f"a column with number {n}": [n] for n in range(100)}),
        pl.DataFrame({"value": pl.Series([[1.5] * 500], dtype=pl.Array(pl.Float64, 500))}),
        pl.DataFrame(
            {"value": pl.Series([[{"key": "k" * 900, "value": "v" * 900}]], dtype=pl.Map(pl.String(), pl.String()))}
        ),
    ],
    ids=["text", "escapes", "bytes", "list", "objects", "a name", "a name inside", "many columns", "array", "map"],
)
def test_a_record_that_is_too_large_is_refused(rows: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(
        st.SinkError, match=r"a record has \d,\d+ bytes, but its producer takes at most 1,700 besides the header"
    ):
        outbox().write(rows, tmp_path / "rows.arrow")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("value", ["json", "csv", "avro", "text"])
def test_the_size_is_that_of_the_record(value: Literal["json", "csv", "avro", "text"], tmp_path: Path) -> None:
    rows = pl.DataFrame({"value": ["v" * 1000], "k": ["k" * 100]})
    files = outbox(value=value, key="k")
    ((made,), (key,)) = encoded(rows, files.coding, "k", b"")
    room = 1700 - len(made or b"") - len(key or b"")
    for more, fits in ((room, True), (room + 1, False)):
        larger = rows.with_columns(pl.col("value") + "v" * more)
        if fits:
            files.write(larger, tmp_path / "rows.arrow")
            continue
        with pytest.raises(st.SinkError, match="a record has 1,701 bytes"):
            files.write(larger, tmp_path / "rows.arrow")


@pytest.mark.parametrize("number", [-1, 2**31])
def test_what_no_topic_has_as_a_partition_is_refused(number: int, tmp_path: Path) -> None:
    rows = pl.DataFrame({"n": [0, number, None]})
    with pytest.raises(
        st.SinkError, match=f"'n' sends a row to the partition {number}, but partitions are numbered from 0; change"
    ):
        outbox(partition="n").write(rows, tmp_path / "rows.arrow")
    outbox(partition="n").write(rows.filter(pl.col("n") != number), tmp_path / "rows.arrow")


def test_what_goes_to_tasks_has_no_secrets() -> None:
    registry = st.schema_registry("http://localhost:8081", user="me", password="hunter2")
    files = outbox(value="avro", registry=registry)
    assert files.coding.registry is None


@pytest.mark.parametrize("value", ["json", "csv", "avro"])
@pytest.mark.parametrize(
    ("column", "what"),
    [
        (pl.Series("y", [2**62]).cast(st.TIME), "a year before 1 or after 9999"),
        (pl.Series("y", [2**31 - 1], dtype=pl.Int32).cast(pl.Date), "a year before 1 or after 9999"),
        (pl.Series("y", [2**62]).cast(pl.Datetime("ms")), "a year before 1 or after 9999"),
        (pl.Series("y", [-(2**62)]).cast(pl.Duration("ms")), "a length of time of more than 292,000 years"),
    ],
    ids=["a time in no calendar", "a day in no calendar", "milliseconds", "a length of time"],
)
def test_times_that_nobody_can_write_are_refused(
    value: Literal["json", "csv", "avro"], column: pl.Series, what: str, tmp_path: Path
) -> None:
    with pytest.raises(st.SinkError, match=f"'y' has {what}, which a record cannot hold"):
        outbox(value=value).write(column.to_frame(), tmp_path / "rows.arrow")
    outbox(value=value).write(pl.DataFrame([column.clear(1)]), tmp_path / "rows.arrow")


@pytest.mark.parametrize("value", ["json", "csv", "avro"])
def test_the_first_and_the_last_times_that_calendars_have_are_written(
    value: Literal["json", "csv", "avro"], tmp_path: Path
) -> None:
    first, last = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
    rows = pl.DataFrame({"naive": [first, last], "ts": [first.replace(tzinfo=UTC), last.replace(tzinfo=UTC)]})
    rows = rows.with_columns(day=pl.col("ts").dt.date())
    made = outbox(value=value)
    made.write(rows, tmp_path / "rows.arrow")
    values, _ = encoded(pl.read_ipc(tmp_path / "rows.arrow"), made.coding, None, b"")
    if value != "avro":
        found = parser(value, rows.schema, ",")(values)
        assert found.faults == {}
        assert found.rows.equals(rows)


def test_a_task_without_rows_has_nothing_to_refuse(tmp_path: Path) -> None:
    """However small records must be: names alone may be too long for them."""
    rows = pl.DataFrame(schema={f"a column with number {n}": pl.String for n in range(100)})
    outbox().write(rows, tmp_path / "rows.arrow")
    assert pl.read_ipc(tmp_path / "rows.arrow").equals(rows)


def test_protobuf_has_no_null_inside_a_list(tmp_path: Path) -> None:
    """The library would leave it out, or write a zero."""
    from google.protobuf.field_mask_pb2 import FieldMask

    made = outbox(value="protobuf", message=FieldMask)
    made.write(pl.DataFrame({"paths": [["a", ""], [], None]}), tmp_path / "good.arrow")
    with pytest.raises(st.SinkError, match="'paths' has a null inside a list, which Protobuf cannot express"):
        made.write(pl.DataFrame({"paths": [["a"], ["b", None]]}), tmp_path / "rows.arrow")
