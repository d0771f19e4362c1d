"""What the tests of the sources share: reading a source to its end, in cuts of any size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest

from springtide.connectors import POSITION, Source, Take


@dataclass
class Everything:
    """All that came of a source: rows and reasons by position."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    rejected: dict[int, dict[str, Any]] = field(default_factory=dict)
    takes: list[Take] = field(default_factory=list)

    def values(self, column: str) -> list[Any]:
        return [row[column] for row in self.rows.values()]


Drain = Callable[..., Everything]


@pytest.fixture
def drain() -> Drain:
    """`drain(source, limit)` takes until the source has ended or has nothing; a position goes through JSON in between."""

    def run(source: Source, limit: int = 10**9, position: Any = None) -> Everything:
        got = Everything()
        while True:
            take = source.take(position, limit, None)
            got.takes.append(take)
            for part in take.slices:
                read = source.read(part)
                frame = read.rows.collect()
                counted = range(part.position, part.position + frame.height)
                places = frame[POSITION] if POSITION in frame.columns else counted
                assert frame.drop(POSITION, strict=False).schema == source.schema()
                assert frame.height + len(read.rejected) == part.rows
                for place, row in zip(places, frame.drop(POSITION, strict=False).to_dicts(), strict=True):
                    assert place not in got.rows
                    got.rows[place] = row
                for wrong in read.rejected:
                    got.reasons[wrong["position"]] = wrong["reason"]
                    got.rejected[wrong["position"]] = json.loads(wrong["row"])
            assert sum(p.rows for p in take.slices) <= limit
            position = json.loads(json.dumps(take.position))
            if take.ended or not take.slices:
                return got

    return run


@pytest.fixture
def frame_of() -> Callable[[Any], pl.DataFrame]:
    """`frame_of(source)` is what the reference reads of a source without rejected rows."""

    def read(source: Any) -> pl.DataFrame:
        (rows,) = source.read_all().values()
        assert isinstance(rows, pl.DataFrame)
        return rows

    return read
