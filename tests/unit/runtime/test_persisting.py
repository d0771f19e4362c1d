"""Checkpoints in the background: one that failed is not held against those that work, and only what is durable counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from springtide.query.errors import SpringtideError, UnavailableError
from springtide.runtime.persisting import Persister
from springtide.state.manifest import Manifest, SubqueryState
from springtide.state.segment import Segment


@dataclass
class Disk:
    """Tiers that take segments, or fail first."""

    failures: list[Exception] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def persist(self, segments: Iterable[Segment]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.taken += [segment.file for segment in segments]


def epoch(number: int) -> Manifest:
    segment = Segment(
        f"state/s/{number}.arrow",
        "panes",
        epoch=number,
        instance=0,
        version=0,
        rows=1,
        bytes=1,
        low=0,
        high=0,
        crc=None,
    )
    return Manifest(number, 1, state={"s": SubqueryState({}, (segment,))})


def persister(disk: Any, notes: list[str]) -> Persister:
    return Persister(disk, 1.0, count(step=10).__next__, notes.append)


def test_a_checkpoint_that_works_is_not_blamed_for_one_that_did_not() -> None:
    disk, notes = Disk([OSError("full")]), list[str]()
    own = persister(disk, notes)
    for number in range(3):
        own.committed(epoch(number))
        own.wait()
    assert own.whole == {1, 2}
    assert notes == ["a checkpoint failed and will be tried again: full"]
    own.checkpoint(epoch(3))
    assert own.whole == {1, 2, 3}


@pytest.mark.parametrize(("failure", "seen"), [(OSError("full"), UnavailableError), (ValueError("?"), SpringtideError)])
def test_whatever_fails_the_epoch_is_not_whole(failure: Exception, seen: type[Exception]) -> None:
    disk = Disk([failure, failure])
    own = persister(disk, [])
    own.committed(epoch(0))
    own.wait()
    assert own.whole == set()
    with pytest.raises(seen):
        own.checkpoint(epoch(1))
    assert own.whole == set()


def test_an_epoch_whose_state_was_made_anew_is_not_whole_any_more() -> None:
    """Its state is in other files, and those are in memory only: older logs must stay until they are durable."""
    own = persister(Disk(), [])
    own.committed(epoch(0))
    own.wait()
    assert own.whole == {0}
    own.forget(0)
    assert own.whole == set()
    own.wait()
    assert own.whole == set()
