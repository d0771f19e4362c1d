"""Topics as sources, with a real broker."""

from __future__ import annotations

import json
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Lineage, Owner, Secret, Take
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.state.checkpoint import Checkpoint
from springtide.testing import check_source, compare
from springtide.topics.source import Kafka
from tests.kafka.broker import Topics
from tests.wording import says

CALLS = {"src": pl.String, "n": pl.Int64, "ts": st.TIME}
OWNER = Owner("query", "calls", Lineage("checkpoint"), 0, kind="source")


def values(first: int, count: int) -> list[bytes]:
    return [
        json.dumps({"src": f"s{i % 3}", "n": i, "ts": f"2024-05-01T00:{i // 60:02d}:{i % 60:02d}"}).encode()
        for i in range(first, first + count)
    ]


def take(source: Kafka, position: Any = None, limit: int = 1 << 62, ts: str | None = "ts") -> Take:
    feed = source.open(OWNER)
    try:
        return feed.take(position, limit, ts)
    finally:
        feed.close()


def rows(source: Kafka, found: Take) -> pl.DataFrame:
    return pl.concat(
        [
            pl.DataFrame(schema=source.schema()),
            *(source.read(s).rows.collect().drop("__position") for s in found.slices),
        ]
    )


def test_what_is_there_is_read_in_ranges(topics: Topics) -> None:
    name = topics.new(partitions=3)
    topics.put(name, values(0, 100), 0)
    topics.put(name, values(100, 300), 1)
    source = st.kafka(topics.servers, name, schema=CALLS)
    first = take(source, limit=200)
    assert [(s.stream, s.position, s.rows) for s in first.slices] == [(f"{name}:0", 0, 50), (f"{name}:1", 0, 150)]
    assert first.backlog == 200
    assert not first.ended
    assert first.streams == (f"{name}:0", f"{name}:1", f"{name}:2")
    second = take(source, first.position)
    everything = pl.concat([rows(source, first), rows(source, second)])
    assert sorted(everything["n"]) == list(range(400))
    assert everything.schema == source.schema()
    assert take(source, second.position).slices == ()
    assert json.loads(json.dumps(second.position)) == second.position


def test_parts_of_a_record_are_columns(topics: Topics) -> None:
    name = topics.new(retention_ms=-1)
    topics.put(
        name,
        [b"hello", None, b"\xff"],
        key=["a", None, "b"],
        headers=[("h", b"1"), ("e", None)],
        timestamp=1_700_000_000_123,
    )
    options: dict[str, Any] = {
        f"{part}_as": part for part in ("key", "headers", "topic", "partition", "offset", "time")
    }
    source = st.kafka(topics.servers, name, value="bytes", **options)
    moment = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    headers = [{"name": "h", "value": b"1"}, {"name": "e", "value": None}]
    assert rows(source, take(source)).rows() == [
        (b"hello", "a", headers, name, 0, 0, moment),
        (None, None, headers, name, 0, 1, moment),
        (b"\xff", "b", headers, name, 0, 2, moment),
    ]


def test_the_time_can_be_the_broker_s(topics: Topics) -> None:
    name = topics.new(message_timestamp_type="LogAppendTime")
    before = datetime.now(UTC)
    topics.put(name, [b"late"], timestamp=1_700_000_000_123)
    source = st.kafka(topics.servers, name, value="text", time_as="time")
    (found,) = rows(source, take(source))["time"]
    assert abs(found - before) < timedelta(hours=1)  # the broker is on this machine, which may be slow


def test_what_does_not_fit_is_rejected_with_its_offset(topics: Topics) -> None:
    name = topics.new()
    good = {"src": "a", "n": 1, "ts": "2024-05-01T00:00:00Z"}
    pretty = json.dumps(good, indent=2).encode()
    broken = b'{"src": "a\nb", "n": 1}'
    topics.put(
        name,
        [pretty, b"{", None, json.dumps(good | {"n": "x"}).encode(), b"\xff\xfe", broken, b'{"m": 1}', b"[1]", pretty],
    )
    source = st.kafka(topics.servers, name, schema=CALLS, offset_as="offset")
    (part,) = take(source).slices
    read = source.read(part)
    assert read.rows.collect()["offset"].to_list() == [0, 8]
    assert [(r["position"], r["reason"].split(":")[0].split(";")[0]) for r in read.rejected] == [
        (1, "the line is not JSON"),
        (2, "the record has no value"),
        (3, "column 'n'"),
        (4, "it is not UTF-8"),
        (5, "the line is not JSON"),
        (6, "there is no column 'm'"),
        (7, "[1] is not a row of named columns"),
    ]
    assert json.loads(read.rejected[4]["row"]) == {"value": broken.decode()}


def test_csv_and_text(topics: Topics) -> None:
    name = topics.new()
    topics.put(name, [b"a;1", b'"b;c";2\r\n', b"a;b;c", b"a;x", b"a;1\nb;2"])
    source = st.kafka(topics.servers, name, value="csv", schema={"src": pl.String, "n": pl.Int64}, separator=";")
    read = source.read(take(source).slices[0])
    assert read.rows.collect().rows() == [("a", 1, 0), ("b;c", 2, 1)]
    assert [r["position"] for r in read.rejected] == [2, 3, 4]
    text = st.kafka(topics.servers, name, value="text")
    assert rows(text, take(text))["value"][2] == "a;b;c"


def test_where_to_begin_and_to_end(topics: Topics) -> None:
    name = topics.new(partitions=2, retention_ms=-1)
    topics.put(name, values(0, 10), 0, timestamp=[1_000_000 + i * 1000 for i in range(10)])
    moment = datetime.fromtimestamp(1_005, UTC)

    def found(**options: Any) -> list[int]:
        source = st.kafka(topics.servers, name, schema=CALLS, **options)
        return rows(source, take(source))["n"].to_list()

    assert found() == list(range(10))
    assert found(start="latest") == []
    assert found(start=moment) == [5, 6, 7, 8, 9]
    assert found(start={0: 7, 1: 0}) == [7, 8, 9]
    assert found(start={(name, 0): 7, (name, 1): 0}, end={0: 9, 1: 0}) == [7, 8]
    source = st.kafka(topics.servers, name, schema=CALLS, end="now")
    first = take(source, limit=4)
    assert not first.ended
    topics.put(name, values(10, 5), 0)
    topics.grow(name, 3)
    second = take(source, first.position)
    assert second.ended
    assert rows(source, second)["n"].to_list() == [4, 5, 6, 7, 8, 9]
    with pytest.raises(st.SpringtideError, match="partition 1 of the topic"):
        found(start={0: 7})
    with pytest.raises(st.SpringtideError, match="no partition 9"):
        found(start={0: 7, 1: 0, 2: 0, 9: 1})


def test_partitions_and_topics_that_come_later_are_read_from_their_beginning(topics: Topics) -> None:
    name = topics.new()
    source = st.kafka(topics.servers, pattern=f"{name}.*", schema=CALLS, start="latest", discover="0s")
    feed = source.open(OWNER)
    first = feed.take(None, 1 << 62, "ts")
    topics.grow(name, 2)
    other = topics.new(f"{name}-b")
    topics.put(name, values(0, 2), 1)
    topics.put(other, values(2, 2), 0)
    second = feed.take(first.position, 1 << 62, "ts")
    assert sorted(rows(source, second)["n"]) == [0, 1, 2, 3]
    assert second.streams == (f"{name}:0", f"{name}:1", f"{other}:0")


def test_transactions(topics: Topics) -> None:
    """Aborted records are not read, nor what is not committed yet, and control records at the end of a range are no end."""
    name = topics.new()
    producer = topics.producer(transactional_id=name)
    producer.init_transactions(30)
    expected = []
    for n in range(6):
        producer.begin_transaction()
        for value in values(10 * n, 10):
            producer.produce(name, value, partition=0)
        if n % 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected += range(10 * n, 10 * n + 10)
    producer.begin_transaction()
    producer.produce(name, values(99, 1)[0], partition=0)
    producer.flush(30)
    source = st.kafka(topics.servers, name, schema=CALLS)
    assert rows(source, take(source))["n"].to_list() == expected
    position, found = None, list[int]()
    for _ in range(20):  # a few offsets at a time: some ranges have nothing but control records
        some = take(source, position, limit=5)
        position = some.position
        found += rows(source, some)["n"].to_list()
    assert found == expected
    dirty = st.kafka(topics.servers, name, schema=CALLS, isolation="read_uncommitted")
    assert rows(dirty, take(dirty))["n"].to_list() == [*range(60), 99]
    producer.abort_transaction(30)


def test_records_that_were_deleted_before_they_were_read(topics: Topics) -> None:
    name = topics.new()
    topics.put(name, values(0, 10))
    source = st.kafka(topics.servers, name, schema=CALLS)
    seen = take(source)
    first = take(source, limit=2)
    topics.cut(name, 0, 5)
    with pytest.raises(st.SpringtideError, match=f"offsets 2 to 4 of {name}:0 were deleted"):
        take(source, first.position)
    with pytest.raises(st.SpringtideError, match=f"from offset 0 on of {name}:0 were deleted"):
        source.read(seen.slices[0])
    careless = st.kafka(topics.servers, name, schema=CALLS, lost="skip")
    second = take(careless, first.position)
    assert rows(careless, second)["n"].to_list() == [5, 6, 7, 8, 9]
    assert "offsets 2 to 4" in second.notes[0]
    with pytest.raises(ConnectionError, match="gone"):  # a fault that passes: the epoch is taken again
        careless.read(seen.slices[0])


def test_a_partition_that_came_later_and_has_lost_its_first_records(topics: Topics) -> None:
    """Its records came after the last look, so all of them are still to be read."""
    name = topics.new()
    topics.put(name, values(0, 2))
    source = st.kafka(topics.servers, name, schema=CALLS, start="latest")
    first = take(source)
    topics.grow(name, 2)
    topics.put(name, values(10, 5), 1)
    topics.cut(name, 1, 3)
    with pytest.raises(st.SpringtideError, match=f"offsets 0 to 2 of {name}:1 were deleted before they were read"):
        take(source, first.position)
    careless = st.kafka(topics.servers, name, schema=CALLS, lost="skip")
    second = take(careless, first.position)
    assert rows(careless, second)["n"].to_list() == [13, 14]
    assert "offsets 0 to 2" in second.notes[0]


def test_brokers_that_have_lost_records_are_reported_and_waited_for(topics: Topics) -> None:
    """After an unclean election a partition may end before the offset that was read up to."""
    name = topics.new()
    topics.put(name, values(0, 10))
    source = st.kafka(topics.servers, name, schema=CALLS)
    first = take(source)
    further = {**first.position, "next": {f"{name}:0": 15}}
    second = take(source, further)
    assert second.slices == ()
    assert second.position == further
    assert second.notes == (f"{name}:0 ends at offset 10, but was read up to 15: brokers have lost records",)
    topics.put(name, values(10, 10))
    third = take(source, second.position)
    assert rows(source, third)["n"].to_list() == [15, 16, 17, 18, 19]
    assert third.notes == ()


def test_a_topic_that_was_made_anew_is_refused(topics: Topics) -> None:
    name = topics.new()
    topics.put(name, values(0, 10))
    source = st.kafka(topics.servers, name, schema=CALLS)
    first = take(source, limit=2)
    second = take(source, first.position)
    topics.remove(name)
    with pytest.raises(ConnectionError, match="looking for the topics"):
        take(source, first.position)
    topics.new(name)
    topics.put(name, values(50, 1))
    with pytest.raises(st.SpringtideError, match="created again"):  # it has fewer records, which is not the reason
        source.read(second.slices[0])
    topics.put(name, values(51, 9))
    with pytest.raises(st.SpringtideError, match="created again"):
        take(source, first.position)
    with pytest.raises(st.SpringtideError, match="created again"):
        source.read(first.slices[0])


def test_a_source_without_time_is_read_by_as_many_as_there_are(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.topics.ranges.PIECE", 30)
    name = topics.new()
    topics.put(name, values(0, 100))
    source = st.kafka(topics.servers, name, schema=CALLS)
    parts = take(source, ts=None).slices
    assert [p.rows for p in parts] == [30, 30, 30, 10]
    assert all(p.greatest is not None for p in parts)
    backwards = [source.read(p).rows.collect() for p in reversed(parts)]
    assert pl.concat(reversed(backwards))["n"].to_list() == list(range(100))


def test_rows_are_those_of_the_reference_however_it_is_cut(topics: Topics, tmp_path: Path) -> None:
    name = topics.new(partitions=3)
    for p in range(3):
        topics.put(name, [*values(200 * p, 200), b"?"], p)
    source = st.source("calls", st.kafka(topics.servers, name, schema=CALLS, end="now"), ts="ts")
    counts = source.aggregate(by="src", window=st.tumbling("1m"), n=st.sum("n"), calls=st.count())

    def query(sink: Any, rejected: Any) -> st.Query:
        return st.Query("counts", counts.to(sink, name="out"), source.rejected.to(rejected, name="wrong"))

    expected = query(st.memory_sink(), st.memory_sink()).run_reference()
    assert expected.rows("out").height == 30
    assert expected.rows("wrong")["position"].to_list() == [200] * 3
    for instances, rows_per_epoch in ((1, 1000), (2, 70), (5, 130)):
        out, wrong = st.memory_sink(), st.memory_sink()
        checkpoint, options = tmp_path / f"{instances}", Options(instances, rows_per_epoch=rows_per_epoch)
        plan = query(out, wrong).plan(buckets=4)
        inprocess.run(plan, checkpoint, options, between=lambda engine: engine.manifest.epoch < 1)
        inprocess.run(plan, checkpoint, options)
        compare(out.rows(), expected.rows("out"))
        compare(wrong.rows(), expected.rows("wrong"))


def test_partitions_fall_silent_and_come_later_while_a_query_runs(topics: Topics, tmp_path: Path) -> None:
    """One is empty, one falls silent, one is added; then retention takes records that the next run would have read."""
    name, clock, sink = topics.new(partitions=2), [0.0], st.memory_sink()

    def started(**options: Any) -> Engine:
        source = st.kafka(topics.servers, name, schema=CALLS, **options)
        stream = st.source("calls", source, ts="ts", idle_after="5s")
        counts = stream.aggregate(window=st.tumbling("10s"), n=st.count())
        plan = st.Query("silent", counts.to(sink)).plan(buckets=4)
        options = Options(2, clock=lambda: clock[0], timer=lambda: clock[0])
        return Engine(plan, Checkpoint(tmp_path), lambda epoch: inprocess.execute(plan, epoch), options)

    def found(engine: Engine) -> list[int]:
        while engine.has_work():
            engine.run()
        return sink.rows()["n"].to_list() if sink.epochs else []

    with closing(started()) as engine:
        engine.begin()
        topics.put(name, values(0, 25), 0)
        assert found(engine) == []  # the empty partition could still bring something
        clock[0] = 6.0
        assert found(engine) == [10, 10]
        topics.grow(name, 3)
        topics.put(name, values(30, 1), 2)
        topics.put(name, values(44, 1), 0)
        assert found(engine) == [10, 10, 5]  # what comes from the new one is later than that
        clock[0] = 12.0
        assert found(engine) == [10, 10, 5, 1]
    topics.put(name, values(45, 6), 0)
    topics.cut(name, 0, 29)
    with closing(started()) as engine:
        engine.begin()
        with pytest.raises(st.SpringtideError, match=rf"offsets 26 to 28 of {name}:0"):
            found(engine)
    with closing(started(lost="skip")) as engine:
        engine.begin()
        found(engine)
        clock[0] = 18.0
        assert found(engine) == [10, 10, 5, 1, 3]
        assert says(engine.events, "step calls (source)", f"offsets 26 to 28 of {name}:0 were deleted")


def test_nothing_shows_a_password(topics: Topics) -> None:
    config = {"sasl.password": "hunter2", "ssl.key.password": Secret.env("NOT_SET"), "client.id": "me"}
    source = st.kafka(topics.servers, topics.new(), schema=CALLS, config=config)
    shown = f"{source!r} {source.describe()} {st.source('calls', source, ts='ts')!r}"
    assert "hunter2" not in shown
    with pytest.raises(st.SpringtideError, match="NOT_SET"):
        take(st.kafka(topics.servers, "t", schema=CALLS, config={"sasl.password": Secret.env("NOT_SET")}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": None}, "exactly one of the two must be given"),
        ({"pattern": "a.*"}, "exactly one of the two must be given"),
        ({"value": "xml"}, "value='xml'"),
        ({"schema": None}, "value='json' needs a schema"),
        ({"value": "text"}, "value='text' takes no schema"),
        ({"key_as": "n"}, "two columns 'n'"),
        ({"start": "soon"}, "start='soon'"),
        ({"end": {0: -1}}, "end="),
        ({"topic": ["a", "b"], "start": {0: 1}}, "start="),
        ({"config": {"group.id": "mine"}}, "set by Springtide"),
        ({"servers": ""}, "names no brokers"),
        ({"topic": None, "pattern": "("}, "regular expression"),
    ],
)
def test_what_is_wrong_is_refused_when_it_is_written(options: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"servers": "localhost:9092", "topic": "t", "schema": CALLS} | options
    with pytest.raises(st.QueryError, match=words):
        st.kafka(**arguments)


def test_the_suite_for_sources(topics: Topics) -> None:
    """The suite that every source passes; one partition is empty, one has records that do not fit."""
    name = topics.new(partitions=3)
    topics.put(name, values(0, 8), 0)
    topics.put(name, [*values(8, 3), b"?", None], 1)
    config = {"sasl.password": "hunter2"}
    source = partial(st.kafka, topics.servers, name, schema=CALLS, end="now", config=config)
    check_source(source, rows=13, ts="ts", secrets=("hunter2",))


def test_a_compacted_topic(topics: Topics) -> None:
    """Records that were compacted away leave offsets without a record, at the ends of ranges too."""
    name = topics.new(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.01,
        segment_ms=50,
        delete_retention_ms=1,
        max_compaction_lag_ms=1,
    )
    topics.put(name, values(0, 30), key=[f"k{i % 3}" for i in range(30)])
    until = time.monotonic() + 120
    turn = 30
    while len(topics.get(name)) >= turn and time.monotonic() < until:  # a segment is closed when the next record comes
        topics.put(name, values(turn, 1), key=f"k{turn % 3}")
        turn += 1
        time.sleep(0.1)
    assert len(topics.get(name)) < turn, "the broker compacts nothing"
    left = [json.loads(m.value())["n"] for m in topics.get(name)]
    source = st.kafka(topics.servers, name, schema=CALLS, end={0: turn})
    position, found = None, list[int]()
    for _ in range(turn):
        some = take(source, position, limit=4)
        position = some.position
        found += rows(source, some)["n"].to_list()
        if some.ended:
            break
    assert some.ended
    assert set(found) >= set(left[-3:])
    assert found == sorted(set(found))


def test_a_rejected_record_can_be_repaired(topics: Topics) -> None:
    name = topics.new()
    topics.put(name, [b'{"n": "x"}', b"\xff"], key=["k", b"\xfe"])
    source = st.kafka(topics.servers, name, schema=CALLS)
    (part,) = take(source).slices
    found = [(r["position"], json.loads(r["row"])) for r in source.read(part).rejected]
    assert found == [(0, {"key": "k", "value": '{"n": "x"}'}), (1, {"key_base64": "/g==", "value_base64": "/w=="})]
