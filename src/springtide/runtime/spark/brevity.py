"""Whether an epoch is short enough to be one task, all levels of it in one process. Pure.

A stage costs Spark tens of milliseconds, whatever its tasks do, and a shuffle as much again. An epoch with a few milliseconds of work gains nothing from several tasks. Which of the
two forms an epoch has changes nothing in what its instances do: the same blobs in, the same rows, segments and reports out (`docs/decisions/0012-short-epochs.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from springtide.runtime.epoch import Epoch, TaskReport
from springtide.state.bucket_map import BucketMap

SHORT = 0.05
"""Seconds of work: an epoch with less is one task."""
LONG = 0.1
"""Seconds of work: after one-task epochs, an epoch with more has stages again."""
_WAITING = 4.0
"""How many seconds between the beginning and the end of the work count as one of work: tasks that wait for something outside gain from waiting side by side, and a busy machine
makes short work look longer."""
_FEW = 200
"""So many rows count as no more work than those of the last epoch, however few these were."""
_STATE = 8 << 20
"""Bytes of segments that instances may rewrite in a one-task epoch."""


@dataclass(frozen=True)
class Past:
    """What is known of the last epoch."""

    work: float
    """Seconds of work of all instances."""
    rows: int
    maps: Mapping[str, BucketMap]


class Brevity:
    """Chooses the form of each epoch by the work of the last one."""

    def __init__(self) -> None:
        """Begin without a past: the first epoch has stages."""
        self._past: Past | None = None
        self.is_short = False
        """Whether the last epoch was chosen to be one task."""

    def choose(self, epoch: Epoch) -> bool:
        """Return whether an epoch is to be one task. What the last one does not foretell has stages: lost state is rebuilt, state moves, or much of it is rewritten."""
        past, limit = self._past, LONG if self.is_short else SHORT
        self.is_short = (
            past is not None
            and not (epoch.silent or epoch.replayed or epoch.migrated)
            and epoch.maps == past.maps
            and _rewritten(epoch) <= _STATE
            and past.work * max(1.0, rows_of(epoch) / max(past.rows, _FEW)) < limit
        )
        return self.is_short

    def learn(self, epoch: Epoch, reports: Sequence[TaskReport]) -> None:
        """Note how much work an epoch was."""
        work = sum(max(r.cpu, r.busy / _WAITING) for r in reports)
        self._past = Past(work, rows_of(epoch), epoch.maps)

    def forget(self) -> None:
        """Note that an epoch failed: what is tried next has stages."""
        self._past, self.is_short = None, False


def rows_of(epoch: Epoch) -> int:
    """Count the rows that an epoch takes, as far as the sources say."""
    return sum(part.rows for shares in epoch.slices.values() for parts in shares for part in parts)


def _rewritten(epoch: Epoch) -> int:
    """Count the bytes of segments that instances rewrite as one."""
    files = {file for merged in epoch.compact.values() for parts in merged.values() for file in parts}
    return sum(s.bytes for state in epoch.state.values() for s in state.segments if s.file in files) if files else 0
