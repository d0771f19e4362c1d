"""What tasks refuse to give to a topic, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest

import springtide as st
from springtide.topics.encoding import encoded
from springtide.topics.outbox import RecordFiles

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
    ],
    ids=["text", "escapes", "bytes", "list", "objects", "a name", "a name inside", "many columns", "array"],
)
def test_a_record_that_is_too_large_is_refused(rows: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(
        st.SinkError, match=r"a record has \d,\d+ bytes, and its producer takes 1,700 besides its header"
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
    with pytest.raises(st.SinkError, match=f"is to go to the partition {number}; they are numbered from 0"):
        outbox(partition="n").write(rows, tmp_path / "rows.arrow")
    outbox(partition="n").write(rows.filter(pl.col("n") != number), tmp_path / "rows.arrow")


def test_what_goes_to_tasks_has_no_secrets() -> None:
    registry = st.schema_registry("http://localhost:8081", user="me", password="hunter2")
    files = outbox(value="avro", registry=registry)
    assert files.coding.registry is None
