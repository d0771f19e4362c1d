"""What becomes of single records, without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

import springtide as st


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
