"""What an epoch was like, from the reports of its tasks."""

from __future__ import annotations

from springtide.connectors import Slice
from springtide.elastic.snapshot import Latency
from springtide.runtime.measuring import latency


def part(rows: int, first: float | None, last: float | None = None) -> Slice:
    return Slice("0", 0, rows, None, arrived=None if first is None else (first, first if last is None else last))


def test_rows_waited_from_when_they_were_there() -> None:
    #   90 rows came at 4, 10 at 1          now 10
    assert latency([part(90, 4.0), part(10, 1.0)], now=10.0, began=9.0) == Latency(6.0, 9.0, 9.0)


def test_rows_of_a_slice_came_evenly() -> None:
    found = latency([part(1000, 0.0, 10.0)], now=10.0, began=9.0)
    assert found is not None
    assert 4.5 < found.p50 < 5.5
    assert 9.0 < found.p95 <= found.p99 <= 10.0


def test_rows_of_unknown_arrival_came_with_the_epoch() -> None:
    assert latency([part(5, None)], now=10.0, began=9.5) == Latency(0.5, 0.5, 0.5)
    assert latency([], now=10.0, began=9.5) is None
    assert latency([part(5, 11.0)], now=10.0, began=9.5) == Latency(0.0, 0.0, 0.0), "a clock that went back"
