"""What becomes of single records, without a broker."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import fastavro
import polars as pl

import springtide as st
from springtide.topics.avro import AvroReader
from springtide.topics.protobuf import Message, ProtobufReader


@dataclass
class Record:
    """A record as the client library gives it."""

    at: int
    milliseconds: int = 0
    header: bytes = b"h"

    def value(self) -> bytes:
        return b"v"

    def key(self) -> None:
        return None

    def offset(self) -> int:
        return self.at

    def headers(self) -> list[tuple[str, bytes]]:
        return [(self.header.decode(), b"1")]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.milliseconds


def test_a_time_that_no_column_holds_is_the_fault_of_its_record_alone() -> None:
    """Producers give any 64 bits; in microseconds they would be another time."""
    source = st.kafka("localhost:9092", "calls", value="text", time_as="ts")
    found: list[Any] = [Record(n, time) for n, time in enumerate([5, 2**63 - 1, -(2**63), 2**60, -1])]
    rows, rejected = source._read(found)
    assert rows["ts"].cast(pl.Int64).to_list() == [5000, -1000]
    assert [row["position"] for row in rejected] == [1, 2, 3]
    assert {row["reason"] for row in rejected} == {"the time of the record does not fit 64 bits of microseconds"}


def test_a_header_whose_name_is_no_text_is_the_fault_of_its_record_alone() -> None:
    source = st.kafka("localhost:9092", "calls", value="text", headers_as="headers")
    rows, rejected = source._read([Record(0), Record(1, header=b"\xff"), Record(2)])
    assert rows["headers"].to_list() == [[{"name": "h", "value": b"1"}]] * 2
    assert [(row["position"], row["reason"]) for row in rejected] == [(1, "the name of a header is not UTF-8")]


def test_a_time_of_no_calendar_is_the_fault_of_its_record_alone_in_avro() -> None:
    """Its message cannot show it as Python's."""
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    written = {"type": "record", "name": "Call", "fields": [{"name": "ts", "type": millis}]}
    values = []
    for time in (5, 2**62, -(2**63)):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, {**written, "fields": [{"name": "ts", "type": "long"}]}, {"ts": time})
        values.append(out.getvalue())
    found = AvroReader(pl.Schema({"ts": st.TIME}), own=json.dumps(written)).read(values)
    assert found.rows["ts"].cast(pl.Int64).to_list() == [5000]
    assert found.faults == {1: f"column 'ts': {2**62} is not time", 2: f"column 'ts': {-(2**63)} is not time"}


def test_a_time_that_no_column_holds_is_the_fault_of_its_record_alone_in_protobuf() -> None:
    """The library would make the last time of it that there is."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="call.proto", package="t", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    kind, label = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    file.message_type.add(name="Call").field.add(
        name="ts", number=1, type=kind, label=label, type_name=".google.protobuf.Timestamp"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    call: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Call"))
    values = []
    for seconds in (5, 2**60, -(2**62)):
        message = call()
        message.ts.seconds = seconds
        values.append(message.SerializeToString())
    found = ProtobufReader(pl.Schema({"ts": st.TIME}), message=Message.of("", call)).read(values)
    assert found.rows["ts"].cast(pl.Int64).to_list() == [5_000_000]
    assert found.faults == dict.fromkeys((1, 2), "column 'ts': it does not fit 64 bits of microseconds")
