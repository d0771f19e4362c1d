"""Avro and Protobuf with a schema registry: schemas that evolve, records that are broken, a registry that is away."""

from __future__ import annotations

import base64
import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pytest

import springtide as st
from springtide.connectors import Secret
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.testing import compare
from springtide.topics import avro, protobuf, wire
from springtide.topics.avro import AvroReader
from springtide.topics.avro_schemas import schema_of
from springtide.topics.protobuf import Message, ProtobufReader
from springtide.topics.registry import Registry
from springtide.topics.values import Parsed
from tests.kafka.broker import Topics
from tests.kafka.registry import Small, absent, apicurio
from tests.wording import says

WHEN = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def registry() -> Iterator[Small]:
    small = Small()
    yield small
    small.close()


@pytest.fixture(scope="session")
def real_registry() -> Iterator[str]:
    if (why := absent()) is not None:
        pytest.skip(why)
    with apicurio() as url:
        yield url


@pytest.fixture(scope="session")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that protoc generates."""
    folder = tmp_path_factory.mktemp("proto")
    here = Path(__file__).parent
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{here}", f"--python_out={folder}", "calls.proto"]
    subprocess.run(command, check=True, cwd=here)
    sys.path.insert(0, str(folder))
    try:
        import calls_pb2  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(folder))
    return calls_pb2


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Call",
        "fields": [f if isinstance(f, dict) else {"name": f[0], "type": f[1]} for f in fields],
        **more,
    }


def datum(schema: dict[str, Any], row: dict[str, Any], id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return (b"" if id is None else wire.head(id)) + out.getvalue()


def rejected(parsed: Parsed) -> dict[int, str]:
    return dict(sorted(parsed.faults.items()))


# ── Avro ──────────────────────────────────────────────────────────────────────────────────────────────────────────

EVERYTHING = record(
    ("s", "string"),
    ("i", "int"),
    ("f", "float"),
    ("b", "boolean"),
    ("raw", "bytes"),
    ("n", ["null", "string"]),
    {"name": "last", "type": ["long", "null"], "default": 0, "doc": "null comes last"},
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("fixed", {"type": "fixed", "name": "F", "size": 4}),
    ("list", {"type": "array", "items": "int"}),
    ("cell", record(("x", "int"), ("y", ["null", "string"]), name="Cell")),
    ("ts", {"type": "long", "logicalType": "timestamp-millis"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("d", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]),
)
ROW: dict[str, Any] = {
    "s": "ü",
    "i": -1,
    "f": 1.5,
    "b": True,
    "raw": b"\x00",
    "n": None,
    "last": 5,
    "e": "B",
    "fixed": b"abcd",
    "list": [1, 2],
    "cell": {"x": 1, "y": "z"},
    "ts": WHEN,
    "local": datetime(2024, 5, 1, 12),
    "day": date(2024, 5, 1),
    "d": Decimal("1.25"),
}


def test_every_type_of_avro(registry: Small) -> None:
    id = registry.add(EVERYTHING)
    columns = {
        "s": pl.String,
        "i": pl.Int64,
        "f": pl.Float64,
        "b": pl.Boolean,
        "raw": pl.Binary,
        "n": pl.String,
        "last": pl.Int64,
        "e": pl.String,
        "fixed": pl.Binary,
        "list": pl.List(pl.Int64),
        "cell": pl.Struct({"y": pl.String, "x": pl.Int64, "new": pl.Int8}),
        "ts": st.TIME,
        "local": pl.Datetime("us"),
        "day": pl.Date,
        "d": pl.Decimal(18, 4),
    }
    parsed = AvroReader(pl.Schema(columns), Registry(registry.url)).read([datum(EVERYTHING, ROW, id)] * 3)
    assert parsed.faults == {}
    expected = ROW | {"cell": {"y": "z", "x": 1, "new": None}, "d": Decimal("1.2500")}
    assert parsed.rows.to_dicts() == [expected] * 3


def test_maps_and_unions_are_read_one_by_one(registry: Small) -> None:
    schema = record(
        ("m", {"type": "map", "values": "long"}),
        ("u", ["null", "int", "string"]),
        ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
        ("again", "E"),
    )
    id = registry.add(schema)
    columns = pl.Schema(
        {"m": pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})), "u": pl.Int64, "again": pl.String}
    )
    rows = [{"m": {"a": 1}, "u": 3, "e": "A", "again": "B"}, {"m": {}, "u": "text", "e": "A", "again": "A"}]
    parsed = AvroReader(columns, Registry(registry.url)).read([datum(schema, row, id) for row in rows])
    assert parsed.rows.to_dicts() == [{"m": [{"key": "a", "value": 1}], "u": 3, "again": "B"}]
    assert list(parsed.faults) == [1]


def test_schemas_of_avro_that_evolve(registry: Small) -> None:
    """Several schemas in one range: a field grows, one comes, one goes, one gets another name."""
    first, second = record(("src", "string"), ("n", "int"), ("old", "int")), record(("from", "string"), ("n", "long"))
    third = record(("src", "string"), ("n", "double"), ("region", "string"))
    other = record(("src", "string"), ("n", "string"), ("region", "string"))
    ids = [registry.add(s) for s in (first, second, third, other)]
    values = [
        datum(second, {"from": "b", "n": 2**40}, ids[1]),
        datum(first, {"src": "a", "n": 1, "old": 0}, ids[0]),
        datum(third, {"src": "c", "n": 0.5, "region": "eu"}, ids[2]),
        datum(first, {"src": "d", "n": 4, "old": 0}, ids[0]),
        datum(other, {"src": "e", "n": "5", "region": "eu"}, ids[3]),
    ]
    wanted = record(
        {"name": "src", "type": "string", "aliases": ["from"]},
        ("n", "double"),
        {"name": "region", "type": "string", "default": "us"},
    )
    source = st.kafka("localhost:9092", "t", value="avro", schema=json.dumps(wanted), registry=registry.url)
    assert source.reader is not None
    parsed = source.reader.read(values)
    assert parsed.rows.rows() == [("b", 2.0**40, "us"), ("a", 1.0, "us"), ("c", 0.5, "eu"), ("d", 4.0, "us")]
    assert parsed.numbers.to_list() == [0, 1, 2, 3]
    assert rejected(parsed) == {4: "column 'n': it was written as str, which is not f64"}
    assert len(registry.asked) == 4  # each schema once
    source.reader.read(values)
    assert len(registry.asked) == 4
    plain = AvroReader(pl.Schema({"src": pl.String(), "n": pl.Int8()}), Registry(registry.url)).read(values)
    assert plain.rows.rows() == [("a", 1), ("d", 4)]
    assert list(plain.faults) == [0, 2, 4]
    assert plain.faults[0] == "column 'n': 1099511627776 is not i8"
    strict = record(("src", "string"), ("region", "string"))
    lacking = AvroReader(pl.Schema({"src": pl.String()}), Registry(registry.url), None, {}, frozenset({"region"}))
    assert says(lacking.read(values).faults[1], "no field 'region'", "no default")
    assert strict["fields"]


def test_exactly_the_records_of_avro_that_are_broken_are_rejected(registry: Small) -> None:
    """A record that is too long, too short or cut off does no harm to its neighbours, wherever it is."""
    schema = record(("src", "string"), ("n", ["null", "long"]), ("list", {"type": "array", "items": "string"}))
    id, random_ = registry.add(schema), random.Random(7)
    good = [datum(schema, {"src": f"s{i}", "n": i, "list": ["x"] * (i % 3)}, id) for i in range(200)]
    values: list[bytes | None] = list(good)
    broken = sorted(random_.sample(range(200), 20))
    for turn, i in enumerate(broken):
        whole = good[i]
        values[i] = (whole[:-1], whole + b"\x00", wire.head(id) + b"\xff\xff\x03", whole[:5], b"\x01" + whole[1:])[
            turn % 5
        ]
    values[199 if 199 not in broken else 198] = None
    reader = AvroReader(pl.Schema({"src": pl.String(), "n": pl.Int64()}), Registry(registry.url))
    parsed = reader.read(values)
    wrong = set(broken) | {i for i, v in enumerate(values) if v is None}
    assert set(parsed.faults) == wrong
    assert parsed.rows["n"].to_list() == [i for i in range(200) if i not in wrong] == parsed.numbers.to_list()
    for i in range(0, 200, 9):  # the same as alone
        alone = reader.read([values[i]])
        assert (alone.rows.rows() == []) == (i in wrong)


def test_what_is_written_as_avro_is_read_by_others(registry: Small) -> None:
    rows = pl.DataFrame(
        {
            "s": ["a", None, "ü"],
            "i": pl.Series([1, -5, None], dtype=pl.Int8),
            "u": pl.Series([1, 2**32 - 1, 0], dtype=pl.UInt32),
            "f": [1.5, -0.0, None],
            "b": [True, None, False],
            "raw": [b"", b"\xff", None],
            "d": pl.Series(["1.25", None, "-3"]).cast(pl.Decimal(9, 2)),
            "ts": pl.Series([WHEN, None, WHEN]).cast(st.TIME),
            "ms": pl.Series([WHEN, None, WHEN]).cast(pl.Datetime("ms", "Europe/Berlin")),
            "day": [date(2024, 5, 1), None, date(1, 1, 1)],
            "t": (pl.Series([1, None, 86_399_999_999], dtype=pl.Int64) * 1000).cast(pl.Time),
            "list": [[1, None], [], None],
            "cell": [{"x": 1, "when": WHEN}, None, {"x": None, "when": None}],
            "kind": pl.Series(["A", "B", None], dtype=pl.Enum(["A", "B"])),
        },
        schema_overrides={"cell": pl.Struct({"x": pl.Int64, "when": st.TIME})},
    )
    schema = schema_of(rows.schema, "Row")
    ready = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = [fastavro.schemaless_reader(io.BytesIO(value), ready, None) for value in avro.encode(rows)]
    plain = rows.with_columns(pl.col("ms").dt.convert_time_zone("UTC"), pl.col("kind").cast(pl.String)).to_dicts()
    assert found == plain
    id = registry.add(schema)
    back = AvroReader(rows.schema, Registry(registry.url)).read([wire.head(id) + v for v in avro.encode(rows)])
    assert back.faults == {}
    assert back.rows.equals(rows)
    assert avro.encode(rows.clear()) == []


# ── Protobuf ──────────────────────────────────────────────────────────────────────────────────────────────────────


def message(calls: Any, n: int) -> Any:
    call = calls.Call(src=f"s{n}", n=n, hops=[1, 2], kind=calls.Call.DATA, raw=b"\xff")
    call.ts.FromDatetime(WHEN)
    call.cell.id = 7
    return call


def test_protobuf_with_a_class(registry: Small, calls: Any) -> None:
    columns = {
        "src": pl.String,
        "n": pl.Int64,
        "cost": pl.Float64,
        "ts": st.TIME,
        "hops": pl.List(pl.Int64),
        "cell": pl.Struct({"id": pl.Int64}),
        "kind": pl.String,
        "raw": pl.Binary,
    }
    bodies = [message(calls, 1).SerializeToString(), b"", b"\x0a\x50abc", message(calls, 2).SerializeToString()]
    bare = st.kafka("localhost:9092", "t", value="protobuf", message=calls.Call, schema=columns)
    assert bare.reader is not None
    expected = [
        ("s1", 1, None, WHEN, [1, 2], {"id": 7}, "DATA", b"\xff"),
        ("", 0, None, None, [], None, "VOICE", b""),
        ("s2", 2, None, WHEN, [1, 2], {"id": 7}, "DATA", b"\xff"),
    ]
    parsed = bare.reader.read([*bodies, None])
    assert parsed.rows.rows() == expected
    assert set(parsed.faults) == {2, 4}
    assert "it is not a calls.Call" in parsed.faults[2]
    whole = st.kafka("localhost:9092", "t", value="protobuf", message=calls.Call)
    assert list(whole.schema()) == list(columns)
    framed = [wire.head(1) + b"\x02\x02" + body for body in bodies]  # the second message of its file
    with_heads = ProtobufReader(pl.Schema(columns), Registry(registry.url), Message.of("", calls.Call))
    parsed = with_heads.read([*framed, b"\x00\x00", wire.head(1) + b"\x80"])
    assert parsed.rows.rows() == expected
    assert set(parsed.faults) == {2, 4, 5}
    assert registry.asked == []


def test_protobuf_with_the_descriptors_of_the_registry(registry: Small, calls: Any) -> None:
    """Two schemas in one range: the second one has a field more, and another type for one."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    one = registry.add(base64.b64encode(calls.DESCRIPTOR.serialized_pb).decode(), "PROTOBUF")
    newer = FileDescriptorProto(name="newer.proto", package="calls", syntax="proto3")
    call = newer.message_type.add(name="Call")
    for number, (name, kind) in enumerate([("src", 9), ("n", 5), ("region", 9)], 1):
        call.field.add(name=name, number=number, type=kind, label=1)
    two = registry.add(base64.b64encode(newer.SerializeToString()).decode(), "PROTOBUF")
    text = registry.add('syntax = "proto3";', "PROTOBUF")
    pool = DescriptorPool()
    pool.Add(newer)
    new_class = GetMessageClass(pool.FindMessageTypeByName("calls.Call"))
    values = [
        wire.head(one) + Message.of("", calls.Call).indexes + message(calls, 1).SerializeToString(),
        wire.head(two) + b"\x00" + new_class(src="b", n=2, region="eu").SerializeToString(),
        wire.head(one) + b"\x00" + calls.Other(a="x").SerializeToString(),
        wire.head(text) + b"\x00",
        wire.head(99) + b"\x00",
        wire.head(one) + b"\x02\x20",
    ]
    columns = pl.Schema({"src": pl.String(), "n": pl.Int64(), "region": pl.String()})
    parsed = ProtobufReader(columns, Registry(registry.url)).read(values)
    assert parsed.rows.rows() == [("s1", 1, None), ("b", 2, "eu"), (None, None, None)]
    faults = rejected(parsed)
    assert list(faults) == [3, 4, 5]
    assert "message=" in faults[3]
    assert "does not have it" in faults[4]
    assert "no message at (16,)" in faults[5]


def test_what_is_written_as_protobuf_is_read_by_others(calls: Any) -> None:
    kind = Message.of("", calls.Call)
    rows = pl.DataFrame(
        {
            "src": ["a", None],
            "n": pl.Series([1, None], dtype=pl.Int32),
            "cost": [None, 2.5],
            "ts": pl.Series([WHEN, None]).cast(st.TIME),
            "hops": pl.Series([[1, 2], None], dtype=pl.List(pl.Int32)),
            "kind": pl.Series(["DATA", None], dtype=pl.Enum(["DATA"])),
        }
    )
    assert kind.unfit(rows.schema) is None
    one, two = (calls.Call.FromString(v) for v in protobuf.encode(rows, kind))
    assert (one.src, one.n, one.HasField("cost"), list(one.hops), one.kind) == ("a", 1, False, [1, 2], 1)
    assert one.ts.ToDatetime(UTC) == WHEN
    assert (two.src, two.n, two.cost, two.HasField("ts"), list(two.hops), two.kind) == ("", 0, 2.5, False, [], 0)
    for schema, words in (
        ({"other": pl.String()}, "has no field 'other'"),
        ({"src": pl.Int64()}, "'src' is i64"),
        ({"n": pl.UInt64()}, "'n' is u64"),
        ({"kind": pl.String()}, "VOICE, DATA"),
        ({"kind": pl.Enum(["SMS"])}, "VOICE, DATA"),
    ):
        assert words in (kind.unfit(pl.Schema(schema)) or "")


# ── the registry ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_registry_that_is_away_is_waited_for(registry: Small) -> None:
    schema = record(("n", "long"))
    id = registry.add(schema)
    reader = AvroReader(pl.Schema({"n": pl.Int64()}), Registry(registry.url))
    value = datum(schema, {"n": 1}, id)
    for code in (500, 503, 429):
        registry.answer = code
        with pytest.raises(ConnectionError, match=str(code)):  # a fault that passes
            reader.read([value])
    registry.answer = None
    assert reader.read([value]).rows.rows() == [(1,)]
    unknown = reader.read([value, datum(schema, {"n": 1}, 77)])
    assert unknown.rows.height == 1
    assert "schema 77 cannot be read: the registry does not have it" in unknown.faults[1]
    gone = Small()
    gone.close()
    with pytest.raises(ConnectionError, match="does not answer"):
        AvroReader(pl.Schema({"n": pl.Int64()}), Registry(gone.url)).read([value])


def test_who_may_ask_the_registry(registry: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record(("n", "long"))
    value = datum(schema, {"n": 1}, registry.add(schema))
    registry.password("me", "hunter2")
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    columns = pl.Schema({"n": pl.Int64()})
    allowed = st.schema_registry(registry.url, user="me", password=Secret.env("REGISTRY_PASSWORD"))
    assert AvroReader(columns, allowed).read([value]).rows.height == 1
    wrong = st.schema_registry(registry.url, user="me", password="hunter3")
    with pytest.raises(st.SpringtideError, match=r"refuses access .*; check the user and the password") as refused:
        AvroReader(columns, wrong).read([value])
    registry.credentials = "Bearer abc"
    assert AvroReader(columns, st.schema_registry(registry.url, token="abc")).read([value]).rows.height == 1
    assert not any(word in f"{refused.value} {wrong!r} {allowed!r}" for word in ("hunter", "abc"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"value": "avro"}, "value='avro' needs a schema"),
        ({"value": "avro", "schema": {"n": pl.Int64}}, "unknown how"),
        ({"value": "avro", "schema": '"string"', "registry": "http://r"}, "not a record"),
        ({"value": "avro", "schema": record(("u", ["int", "string"])), "registry": "http://r"}, "union of several"),
        ({"value": "avro", "schema": record({"name": "n", "type": "int", "default": "x"})}, "not an Avro schema"),
        ({"value": "avro", "schema": {"n": pl.Int64}, "registry": "localhost"}, "not the address"),
        ({"value": "avro", "schema": {"n": pl.Int64}, "registry": "http://a:b@c"}, "has a user"),
        ({"value": "protobuf", "schema": {"n": pl.Int64}}, "unknown what the messages are"),
        ({"value": "protobuf", "message": 5}, "class of a message"),
        ({"value": "json", "schema": {"n": pl.Int64}, "registry": "http://r"}, "is for Avro"),
        ({"value": "json", "schema": {"n": pl.Int64}, "message": 5}, "is for value='protobuf'"),
    ],
)
def test_what_is_wrong_is_refused_when_it_is_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(st.QueryError, match=words):
        st.kafka("localhost:9092", "t", **options)


def test_what_has_no_schema_cannot_be_written(calls: Any) -> None:
    stream = st.source("rows", st.memory(schema={"ts": st.TIME, "n": pl.UInt64, "src": pl.String}), ts="ts")
    with pytest.raises(st.QueryError, match="Avro has no type for u64"):
        stream.to(st.kafka_sink("localhost:9092", "t", value="avro"))
    with pytest.raises(st.QueryError, match="'n' is u64"):
        stream.to(st.kafka_sink("localhost:9092", "t", value="protobuf", message=calls.Call))
    with pytest.raises(st.QueryError, match="give message="):
        st.kafka_sink("localhost:9092", "t", value="protobuf")
    with pytest.raises(st.QueryError, match="is for Avro"):
        st.kafka_sink("localhost:9092", "t", registry="http://r")


# ── end to end ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_with_a_real_registry(topics: Topics, real_registry: str, calls: Any, tmp_path: Path) -> None:
    """Avro and Protobuf out and in again; what the registry finds incompatible is refused before anything is written."""
    rows = pl.DataFrame(
        {
            "src": ["a", "b", "a", "c"],
            "n": [1, 2, 3, 4],
            "ts": (pl.Series([1, 2, 3, 4]) * 1_000_000).cast(st.TIME),
        }
    )
    stream = st.source("rows", st.memory(rows), ts="ts")
    for value, more in (("avro", {}), ("protobuf", {"message": calls.Call})):
        name = topics.new(partitions=2)
        options: dict[str, Any] = {"value": value, "registry": real_registry, **more}
        query = st.Query("copy", stream.to(st.kafka_sink(topics.servers, name, key="src", **options), name="out"))
        inprocess.run(query.plan(), tmp_path / value, Options(1, rows_per_epoch=3))
        topics.put(name, [b"?"])
        back = st.kafka(topics.servers, name, schema=dict(rows.schema), end="now", **options)
        found = st.source("back", back, ts="ts")
        wrong = st.Query("back", found.to(st.memory_sink(), name="out"), found.rejected.to(st.memory_sink(), name="no"))
        result = wrong.run_reference()
        compare(result.rows("out"), rows)
        assert json.loads(result.rows("no")["row"][0]) == {"value": "?"}
        assert all(m.value()[0] == 0 for m in topics.get(name) if m.value() != b"?")
        if value == "avro":
            other = st.source("rows", st.memory(rows.with_columns(pl.col("n").cast(pl.String))), ts="ts")
            _backward(real_registry, f"{name}-value")
            changed = st.Query("copy", other.to(st.kafka_sink(topics.servers, name, **options), name="out"))
            before = len(topics.get(name))
            with pytest.raises(st.SinkError, match="does not accept the schema"):
                inprocess.run(changed.plan(), tmp_path / "changed", Options(1))
            assert len(topics.get(name)) == before


def _backward(url: str, subject: str) -> None:
    from urllib.request import Request, urlopen

    body = json.dumps({"compatibility": "BACKWARD"}).encode()
    headers = {"Content-Type": "application/json"}
    urlopen(Request(f"{url}/config/{subject}", body, headers, method="PUT"), timeout=30).close()
