"""What sinks have of the last epoch, as the checkpoint remembers it: the file `published`.

It is written with every epoch, as it comes, and durably when a run ends: so nothing is given to a sink again after a clean stop, and after a
crash at most the last epoch. Rows of all earlier epochs are with the sinks: an epoch begins only after the last one was published. The last epochs
with rows are remembered for each sink: a target that has lost some since, because it was restored from an older copy, is found out by them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from springtide.query.ids import NO_EPOCH, EpochNumber
from springtide.state.disk import flush
from springtide.state.names import PUBLISHED
from springtide.state.parsing import content, is_for_good, parsed

Commit = tuple[EpochNumber, str]
"""An epoch with rows for a sink, and the mark of that commit."""
_COMMITS = 2
"""How many are remembered: what the last one came after tells whether it is the only one that a target lacks."""


@dataclass(frozen=True)
class Published:
    """An epoch, and the sinks that have its rows."""

    epoch: EpochNumber = NO_EPOCH
    sinks: frozenset[str] = frozenset()
    past: Mapping[str, tuple[str, tuple[Commit, ...]]] = field(default_factory=dict)
    """Sink → its target, as it describes it, and the last commits that it was given, oldest first."""

    def given(self, sink: str, target: str) -> tuple[Commit, ...]:
        """Return the last commits that the target of a sink was given, oldest first; none if it had another target."""
        where, commits = self.past.get(sink, ("", ()))
        return commits if where == target else ()

    def after(self, epoch: EpochNumber, sink: str, target: str, commit: str | None) -> Published:
        """Return what sinks have once one has the rows of an epoch; without a commit there are none."""
        sinks = self.sinks | {sink} if epoch == self.epoch else frozenset({sink})
        if commit is None:
            return replace(self, epoch=epoch, sinks=sinks)
        earlier = tuple(c for c in self.given(sink, target) if c[0] < epoch)
        commits = (*earlier, (epoch, commit))[-_COMMITS:]
        return Published(epoch, sinks, {**self.past, sink: (target, commits)})

    def without(self, sink: str) -> Published:
        """Return the same, but that a sink does not have the last epoch."""
        return replace(self, sinks=self.sinks - {sink})

    def has(self, epoch: EpochNumber, sink: str) -> bool:
        """Return whether a sink has the rows of an epoch."""
        return self.epoch > epoch or (self.epoch == epoch and sink in self.sinks)

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps({"epoch": self.epoch, "sinks": sorted(self.sinks), "past": dict(self.past)}).encode()

    @staticmethod
    def decode(data: bytes) -> Published | None:
        """Read what `encode` wrote; a file that a power cut has damaged says nothing."""
        try:
            found = parsed(data)
            past = {
                str(sink): (str(target), tuple((EpochNumber(int(epoch)), str(commit)) for epoch, commit in commits))
                for sink, (target, commits) in dict(found.get("past", {})).items()
            }
            return Published(EpochNumber(int(found["epoch"])), frozenset(map(str, found["sinks"])), past)
        except (ValueError, KeyError, TypeError, OverflowError, AttributeError):
            return None


def read_published(root: Path) -> Published | None:
    """Return what a checkpoint remembers; None: a version of Springtide wrote it that did not keep this."""
    try:
        data = content(root / PUBLISHED)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not is_for_good(error):
            raise
        return Published()  # what is there is no file of ours, and says nothing
    return Published.decode(data) or Published()


def write_published(root: Path, published: Published, *, durable: bool) -> None:
    """Remember it. Without `durable` it outlives the process, but perhaps not a power cut; then it is written in place, which costs next to nothing."""
    data = published.encode()
    if not durable and _written_in_place(root / PUBLISHED, data):
        return
    partial = root / f"{PUBLISHED}.partial"
    partial.write_bytes(data)
    flush(partial)
    os.replace(partial, root / PUBLISHED)
    flush(root)


def _written_in_place(path: Path, data: bytes) -> bool:
    """Overwrite our own file; False where something else is in its place: a link to somebody's file, a pipe that nobody reads."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if not is_for_good(error):
            raise
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            return False
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
    return True
