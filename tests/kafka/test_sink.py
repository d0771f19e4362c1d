"""Topics as sinks, with a real broker: exactly once for a reader of committed records, whatever is killed."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Lineage, Owner, Publication
from springtide.query.types import TIME
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.state.names import MANIFESTS
from springtide.testing import check_sink, compare
from tests.kafka.broker import Broker, Topics

OWNER = Owner("query", "out", Lineage("a" * 32), 1, schema=pl.Schema({"x": pl.Int64()}))


def publication(folder: Path, epoch: int, xs: list[int], attempt: str = "") -> Publication:
    path = folder / f"{epoch}{attempt}.arrow"
    frame = pl.DataFrame({"x": xs}, schema={"x": pl.Int64})
    frame.write_ipc(path, compression="uncompressed")
    return Publication("out", epoch, frame.schema, (path,), (len(xs),), query="query", checkpoint="a" * 32)


def xs(topics: Topics, name: str) -> list[int]:
    return sorted(json.loads(m.value())["x"] for m in topics.get(name))


def test_the_suite_for_sinks(topics: Topics) -> None:
    prefix, made = topics.new(), set[str]()

    def make(target: str) -> Any:
        name = f"{prefix}-{target}"
        if name not in made:
            made.add(topics.new(name, partitions=2))
        return st.kafka_sink(topics.servers, name, config={"sasl.password": "hunter2"})

    def read(target: str) -> pl.DataFrame:
        name = f"{prefix}-{target}"
        rows = [json.loads(m.value()) for m in topics.get(name)] if name in made else []
        return pl.DataFrame(rows, schema={"ts": pl.String, "x": pl.Int64})

    check_sink(make, read, secrets=("hunter2",))


def test_what_is_written_is_read_again(topics: Topics, tmp_path: Path) -> None:
    name, schema = topics.new(partitions=3), {"src": pl.String, "n": pl.Float64, "d": pl.Decimal(9, 2), "ts": st.TIME}
    rows = pl.DataFrame(
        {
            "src": ["a", None, "ü\n", "a"],
            "n": [1.5, -0.0, None, 1e300],
            "d": pl.Series(["1.25", None, "-3", "0"]).cast(pl.Decimal(9, 2)),
            "ts": pl.Series([0, 1, 2_000_001, 3_000_000]).cast(TIME),
        },
        schema=schema,
    )
    stream = st.source("rows", st.memory(rows), ts="ts")
    query = st.Query("copy", stream.to(st.kafka_sink(topics.servers, name, key="src"), name="out"))
    inprocess.run(query.plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=2))
    back = st.source("rows", st.kafka(topics.servers, name, schema=schema, key_as="key", end="now"), ts="ts")
    result = st.Query("back", back.to(st.memory_sink())).run_reference().rows()
    compare(result.drop("key"), rows)
    assert result.filter(pl.col("key").ne_missing(pl.col("src"))).is_empty()
    records = topics.get(name)
    assert len({m.partition() for m in records if m.key() == b"a"}) == 1
    headers = sorted(m.headers()[0][1].decode() for m in records)
    assert headers == ["copy/out/0/0", "copy/out/0/1", "copy/out/1/0", "copy/out/1/1"]


def test_lines_of_csv(topics: Topics, tmp_path: Path) -> None:
    """Whatever is in a text, what is written is read again: separators, quotes, line breaks, nothing at all."""
    name, schema = topics.new(), {"s": pl.String, "n": pl.Int64, "ts": st.TIME}
    texts = ["a;b", 'c"d', "e\nf", "", None, "g"]
    moments = pl.Series([1_000_000 * n for n in range(6)]).cast(TIME)
    rows = pl.DataFrame({"s": texts, "n": range(6), "ts": moments}, schema=schema)
    stream = st.source("rows", st.memory(rows), ts="ts")
    query = st.Query("lines", stream.to(st.kafka_sink(topics.servers, name, value="csv", separator=";"), name="out"))
    inprocess.run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=2))
    assert b"g;5;1970-01-01T00:00:05.000000Z" in [m.value() for m in topics.get(name)]
    source = st.kafka(topics.servers, name, value="csv", schema=schema, separator=";", end="now")
    back = st.Query("back", st.source("rows", source, ts="ts").to(st.memory_sink())).run_reference().rows()
    compare(back, rows)


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32", "fnv1a"])
def test_keys_decide_partitions_as_in_other_clients(topics: Topics, tmp_path: Path, partitioner: str) -> None:
    """What another client puts into a partition by the key, we put into the same."""
    keys, theirs = [f"k{i}" for i in range(20)], topics.new(partitions=5)
    native = {"murmur2": "murmur2", "crc32": "consistent", "fnv1a": "fnv1a"}[partitioner]
    producer = topics.producer(partitioner=native)
    for key in keys:
        producer.produce(theirs, b"", key)
    assert producer.flush(300) == 0
    ours = topics.new(partitions=5)
    stream = st.source("rows", st.memory(pl.DataFrame({"k": keys})))
    sink = st.kafka_sink(topics.servers, ours, key="k", partitioner=partitioner)  # type: ignore[arg-type]
    inprocess.run(st.Query("keys", stream.to(sink, name="out")).plan(), tmp_path / "ckpt", Options(1))
    places = [{m.key(): m.partition() for m in topics.get(name)} for name in (theirs, ours)]
    assert places[0] == places[1]
    assert len({*places[0].values()}) > 1


def test_a_column_says_the_partition(topics: Topics, tmp_path: Path) -> None:
    """A row that names a partition which is not there ends the run before anything of its epoch is written."""
    name = topics.new(partitions=3)
    sink = st.kafka_sink(topics.servers, name, partition="n")

    def write(folder: str, ns: list[int | None], writer: Any = sink) -> None:
        stream = st.source("rows", st.memory(pl.DataFrame({"n": ns})))
        inprocess.run(st.Query("rows", stream.to(writer, name="out")).plan(), tmp_path / folder, Options(1))

    write("ckpt", [2, 0, 1, 2, None])
    found = [(json.loads(m.value())["n"], m.partition()) for m in topics.get(name)]
    assert sorted(found, key=str)[:4] == [(0, 0), (1, 1), (2, 2), (2, 2)]
    other = replace(sink, writer="other")
    with pytest.raises(st.SinkError, match=r"partition 3 of .*, which has 3: 0 to 2; give the topic more partitions"):
        write("other", [0, 3], other)
    assert len(topics.get(name)) == 5
    topics.grow(name, 4)
    write("other", [0, 3], other)
    assert [m.partition() for m in topics.get(name) if json.loads(m.value())["n"] == 3] == [3]


def written(topics: Topics, topic: str, folder: Path, rows: pl.DataFrame, **options: Any) -> None:
    sink = st.kafka_sink(topics.servers, topic, **options)
    query = st.Query("odd", st.source("rows", st.memory(rows)).to(sink, name="out"))
    inprocess.run(query.plan(), folder, Options(1, patience=600))


def test_a_record_that_is_too_large_is_refused_and_sent_when_there_is_room(topics: Topics, tmp_path: Path) -> None:
    """The producer's limit is known before the commit, the topic's is not: then the rows wait until it is raised."""
    name, large = topics.new(max_message_bytes=2000), pl.DataFrame({"value": ["x" * 1_100_000]})
    with pytest.raises(st.SinkError, match=r"a record has 1,100,012 bytes, but its producer takes at most 999,700"):
        written(topics, name, tmp_path / "large", large, writer="large")
    assert not [*(tmp_path / "large" / MANIFESTS).glob("0*")]
    rows = pl.DataFrame({"value": [random.randbytes(3000).hex()]})  # nothing that could be compressed
    with pytest.raises(st.SinkError, match=r"does not take the rows: .*; raise max.message.bytes of the topic"):
        written(topics, name, tmp_path / "ckpt", rows)
    topics.change(name, max_message_bytes="2000000")
    written(topics, name, tmp_path / "ckpt", rows)
    assert [json.loads(m.value()) for m in topics.get(name)] == rows.to_dicts()
    written(topics, name, tmp_path / "large", large, writer="large", config={"message.max.bytes": "1500000"})
    assert len(topics.get(name)) == 2


def test_a_compacted_topic_takes_no_records_without_a_key(topics: Topics, tmp_path: Path) -> None:
    name, rows = topics.new(cleanup_policy="compact"), pl.DataFrame({"x": [1, 2]})
    with pytest.raises(st.SinkError, match=r"does not take the rows: .*; change the topic's settings: a compacted one"):
        written(topics, name, tmp_path / "ckpt", rows)
    topics.change(name, cleanup_policy="delete")
    written(topics, name, tmp_path / "ckpt", rows)
    assert xs(topics, name) == [1, 2]


def test_the_fate_of_the_last_transaction_is_unknown(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a commit is lost; what was committed is recognised, and what was not is written."""
    from springtide.topics.sink import KafkaTarget

    name = topics.new()
    writer = st.kafka_sink(topics.servers, name).open(OWNER)
    whole = KafkaTarget.swap

    def cut_off(self: Any, *arguments: Any) -> bool:
        whole(self, *arguments)
        raise ConnectionError("the answer is lost")

    monkeypatch.setattr(KafkaTarget, "swap", cut_off)
    with pytest.raises(ConnectionError):
        writer.publish(publication(tmp_path, 0, [1, 2]))
    monkeypatch.undo()
    writer.publish(publication(tmp_path, 0, [1, 2]))
    assert xs(topics, name) == [1, 2]

    def dies(self: Any, *_: Any) -> None:
        self._producer.flush(30)
        raise ConnectionError("before the commit")

    monkeypatch.setattr(
        "springtide.topics.sink.failpoint", lambda place: dies(writer._target) if "sent" in place else None
    )
    with pytest.raises(ConnectionError):
        writer.publish(publication(tmp_path, 1, [3]))
    monkeypatch.undo()
    assert xs(topics, name) == [1, 2]
    sink = st.kafka_sink(topics.servers, name)  # another process, while the transaction hangs
    after = replace(OWNER, generation=2, epoch=1)
    sink.admit(after)
    successor = sink.open(after)
    successor.publish(publication(tmp_path, 1, [3]))
    successor.close()
    assert xs(topics, name) == [1, 2, 3]
    with pytest.raises(st.SinkError, match="taken over"):
        writer.publish(publication(tmp_path, 1, [3], "again"))
    writer.close()
    assert xs(topics, name) == [1, 2, 3]


def test_a_ledger_that_was_emptied_is_no_new_beginning(topics: Topics, tmp_path: Path) -> None:
    name = topics.new()
    sink = st.kafka_sink(topics.servers, name)
    writer = sink.open(OWNER)
    writer.publish(publication(tmp_path, 0, [1]))
    writer.close()
    again = replace(OWNER, generation=2, epoch=0)
    topics.change(f"{name}.ledger", cleanup_policy="delete")
    topics.cut(f"{name}.ledger", 0, -1)
    with pytest.raises(st.SinkError, match="has lost the entry"):
        sink.admit(again)
    topics.remove(f"{name}.ledger")
    with pytest.raises(st.SinkError, match="has lost the entry"):
        sink.admit(again)
    assert xs(topics, name) == [1]


def test_writers_share_a_topic_by_name(topics: Topics, tmp_path: Path) -> None:
    name = topics.new()
    for number, writer in enumerate(("a", "b")):
        owner = replace(OWNER, lineage=Lineage(writer * 32), name=writer)
        at_work = st.kafka_sink(topics.servers, name, writer=writer).open(owner)
        at_work.publish(publication(tmp_path, 0, [number], writer))
        at_work.close()
    assert xs(topics, name) == [0, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": "n"}, "must be a string or bytes"),
        ({"key": "nobody"}, "the key is the column 'nobody', which does not exist"),
        ({"value": "text"}, "writes the column 'value'"),
        ({"value": "xml"}, "value='xml'"),
        ({"topic": ""}, "the name of a topic"),
        ({"partitioner": "java"}, "partitioner='java' .*; use one of murmur2, crc32"),
        ({"partition": "ts"}, "partition='ts' must name a column of integers"),
    ],
)
def test_what_cannot_be_written_is_refused(options: dict[str, Any], words: str) -> None:
    stream = st.source("rows", st.memory(schema={"ts": st.TIME, "n": pl.Int64}), ts="ts")
    with pytest.raises(st.QueryError, match=words):
        stream.to(st.kafka_sink(**{"servers": "localhost:9092", "topic": "t"} | options))


def test_brokers_that_are_away_for_a_while_are_waited_for(topics: Topics, kafka_broker: Broker, tmp_path: Path) -> None:
    """The broker answers nobody, then is killed and started again; dead letters go to a topic of their own."""
    source, out, dead = topics.new(partitions=2), topics.new(), topics.new()
    for p in range(2):
        rows = [{"n": 100 * p + i, "ts": f"2024-05-01T00:00:{i:02d}Z"} for i in range(50)]
        topics.put(source, [*(json.dumps(row).encode() for row in rows), b"?"], p)
    schema = {"n": pl.Int64, "ts": st.TIME}
    stream = st.source("rows", st.kafka(topics.servers, source, schema=schema, end="now"), ts="ts")
    query = st.Query(
        "away",
        stream.to(st.kafka_sink(topics.servers, out), name="out"),
        stream.rejected.to(st.kafka_sink(topics.servers, dead), name="dead"),
    )
    plan, epochs = query.plan(buckets=4), 0

    def disturb(engine: Any) -> bool:
        nonlocal epochs
        epochs += 1
        if epochs == 2:
            kafka_broker.pause()
            threading.Timer(1.0, kafka_broker.resume).start()
        if epochs == 3:
            kafka_broker.kill()
            threading.Thread(target=kafka_broker.start).start()
        return True

    inprocess.run(plan, tmp_path / "ckpt", Options(2, rows_per_epoch=30, patience=120), between=disturb)
    assert sorted(json.loads(m.value())["n"] for m in topics.get(out)) == [*range(50), *range(100, 150)]
    letters = [json.loads(m.value()) for m in topics.get(dead)]
    assert sorted((letter["stream"], letter["position"]) for letter in letters) == [
        (f"{source}:0", 50),
        (f"{source}:1", 50),
    ]
