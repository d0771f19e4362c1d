"""One checkpoint that the page shows: what is new in it is read, and everything else is kept. All reading for the page happens here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from springtide.elastic.decisions import decisions_of
from springtide.elastic.snapshot import Snapshot
from springtide.query.errors import SpringtideError
from springtide.state.checkpoint import Lineage
from springtide.state.from_outside import from_outside
from springtide.state.log import Log, Slot, is_claim
from springtide.state.manifest import Manifest
from springtide.state.names import MARKER, SAVEPOINTS
from springtide.state.parsing import parsed
from springtide.state.savepoints import savepoints
from springtide.ui import buckets, track
from springtide.ui.decisions import decisions as shown_decisions
from springtide.ui.files import Files
from springtide.ui.now import RECENT as LAST_SECONDS
from springtide.ui.now import CheckpointNow, epoch_of, now_of, recent_load
from springtide.ui.tail import Line, LinePlace, Tail

KEPT = 12
"""How many manifests are remembered, to compute rates."""
RECENT = 100
"""How many snapshots are remembered in full."""
SAMPLES = 200
"""How many late and rejected rows are shown."""
_STEADY = 15.0
"""Seconds that rates look back."""
_ALL = 1 << 30
_SAMPLES = 160
"""At how many moments buckets are shown over time."""
_FOLLOWED = 15.0
"""Seconds after its last epoch for which a query is assumed to run, where that cannot be found out."""


class Watched:
    """A checkpoint in a folder or a store, read a little at a time. Any thread may ask; one at a time reads."""

    def __init__(self, where: str | Path) -> None:
        """Name it; nothing is read yet."""
        self.files = Files.at(where)
        self.checkpoint = from_outside(where)
        """The checkpoint, for whoever leaves commands in it or reads its state."""
        self._lock = threading.RLock()
        self._begin()

    def _begin(self) -> None:
        self._id: str | None = None
        self._identity: dict[str, Any] = {"query": self.files.store.url.rstrip("/").rpartition("/")[2]}
        self._snapshots = Tail(self.files, "snapshots")
        self._decisions = Tail(self.files, "decisions", first=_ALL)
        self._refused = Tail(self.files, "refused", first=SAMPLES << 9)
        self._samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES)
        self._records: list[dict[str, Any]] = []
        self._track = track.EMPTY
        self._recent: deque[Snapshot] = deque(maxlen=RECENT)
        self._manifests: deque[Manifest] = deque(maxlen=KEPT)
        self._newest: Slot | None = None
        self._saved: tuple[object, dict[str, Manifest]] = (None, {})
        self._running = False
        self._takes_commands = False
        """Whether a run was heard of that looks for commands here: that of a checkpoint whose copy this is does not."""
        self._gone: str | None = None
        self.version = 0
        """Counts the changes that were seen."""

    @property
    def root(self) -> Path | None:
        """The folder; None for one in a store."""
        return self.files.store.local

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def refresh(self) -> bool:
        """Read what is new; tell whether there was anything."""
        with self._lock:
            before = self._signature()
            try:
                self._read()
                self._gone = None
            except (SpringtideError, OSError) as error:
                self._gone, self._running = str(error), False
            if self._signature() == before:
                return False
            self.version += 1
            return True

    def glance(self) -> None:
        """Read only which query it is, how far it is and whether it runs."""
        with self._lock:
            try:
                self._read_marker()
                self._read_manifest()
                self._running, self._gone = self._is_running(), None
            except (SpringtideError, OSError) as error:
                self._gone, self._running = str(error), False

    @property
    def is_whole(self) -> bool:
        """Return whether all of the past was read."""
        return self._snapshots.is_whole

    def fill(self) -> None:
        """Read a piece of the past before everything that is known."""
        with self._lock:
            found, places = self._understood(self._snapshots.earlier())
            self._track = track.Track.of(found, places) + self._track
            self.version += 1

    def _signature(self) -> tuple[object, ...]:
        known = len(self._track), len(self._records), self._newest, self._id
        return (*known, self._running, self._gone, self._saved[0])

    def _read(self) -> None:
        self._read_marker()
        self._read_manifest()
        fresh, places = self._understood(self._snapshots.new())
        self._recent.extend(fresh)
        self._track = self._track + track.Track.of(fresh, places)
        self._records += [r for _, line in self._decisions.new() if (r := _decision(line)) is not None]
        self._running = self._is_running()
        self._read_savepoints()

    def _read_marker(self) -> None:
        marker = self.checkpoint.marker()
        lineage = Lineage.of(marker)
        if lineage.id != self._id:
            version = self.version
            self._begin()
            self.version, self._id = version, lineage.id
        self._identity = parsed(marker)["identity"]

    def _read_manifest(self) -> None:
        log = Log(self.files.store)
        slots = log.slots()
        if slots and slots[-1] == self._newest:
            return
        # The first time, rates come from all kept manifests; later, from those that were seen.
        tail = (log.read() if not self._manifests else log.tail()).manifests() or log.tail().manifests()
        known = self._manifests[-1] if self._manifests else None
        self._manifests.extend([m for m in tail[-KEPT:] if known is None or m != known])
        self._newest = slots[-1] if slots else None

    def _read_savepoints(self) -> None:
        stamp: object
        if self.root is None:
            stamp = [path for path in self.files.store.list(SAVEPOINTS) if path.endswith(f"/{MARKER}")]
        else:
            folder = self.root / SAVEPOINTS
            stamp = folder.stat().st_mtime_ns if folder.is_dir() else None
        if stamp != self._saved[0]:
            self._saved = stamp, savepoints(self.files.store)

    def _is_running(self) -> bool:
        self._takes_commands = self.checkpoint.in_use()
        if self._takes_commands or self.root is not None:
            return self._takes_commands
        last = self._manifests[-1] if self._manifests else None
        return last is not None and not last.ended and time.time() - last.metrics.at < _FOLLOWED

    def _understood(self, lines: Sequence[Line]) -> tuple[list[Snapshot], list[LinePlace]]:
        found, places = [], []
        for place, line in lines:
            if (snapshot := _snapshot(line)) is not None:
                found.append(snapshot)
                places.append(place)
        return found, places

    # ── what there is to see ──────────────────────────────────────────────────────────────────────────────────────

    def now(self) -> dict[str, Any]:
        """Return the query as it is now."""
        with self._lock:
            return now_of(self.seen()) | {
                "version": self.version,
                "decided": len(self._records),
                "measured": len(self._track),
                "whole": self._snapshots.is_whole,
                "since": float(self._track.whole["time"][0]) if len(self._track) else None,
                "until": float(self._track.whole["time"][-1]) if len(self._track) else None,
                "place": self.files.store.url,
                "commands": self._takes_commands or self.root is not None,
            }

    def seen(self) -> CheckpointNow:
        """Return what was read so far."""
        kept = list(self._manifests)
        if kept:
            end = kept[-1].metrics.at
            kept = [m for m in kept if m.metrics.at > end - _STEADY] or kept[-1:]
        form = kept[-1].form if kept else None
        return CheckpointNow(
            dict(form or self._identity), kept, self._running, tuple(self._recent), self._saved[1], self._gone
        )

    def series(self, begin: float | None, end: float | None, most: int) -> dict[str, Any]:
        """Return a span of time, summed up for charts."""
        return track.series(self._track, begin, end, most) | {"whole": self._snapshots.is_whole}

    def decisions(self) -> list[dict[str, Any]]:
        """Return all decisions, the newest first."""
        with self._lock:
            return shown_decisions(list(self._records), running=self._running)

    def epochs(self) -> list[dict[str, Any]]:
        """Return the epochs that a start could go back to, the newest first."""
        records = Log(self.files.store).read()
        kept = [slot for slot in records.data if not is_claim(records.data[slot])]
        return [epoch_of(m) for m in reversed(records.manifests())] if kept else []

    def refused(self) -> list[dict[str, Any]]:
        """Return samples of late and rejected rows, the newest first, each with the reason."""
        with self._lock:
            for _, line in self._refused.new():
                self._samples.extend(_samples(line))
            return list(reversed(self._samples))

    def buckets(self, name: str, epoch: int | None) -> dict[str, Any] | None:
        """Return the buckets of a subquery now, or after an earlier epoch; None if they were not measured."""
        with self._lock:
            found = self._around(epoch)
        if found is None or name not in found.subqueries or not found.subqueries[name].map.owners:
            return None
        return buckets.buckets(found, name)

    def hottest(self, name: str, begin: float | None, end: float | None) -> dict[str, Any]:
        """Return the hottest buckets of a subquery over a span of time."""
        with self._lock:
            span = self._track.between(begin, end)
            count = max(0, span.stop - span.start)
            step = max(1, -(-count // _SAMPLES))
            places = self._track.places[span][::-1][::step][::-1]  # the last one is always among them
        found = [s for p in places if (s := _snapshot(self._snapshots.line(p))) is not None]
        return buckets.hottest(found, name)

    def _around(self, epoch: int | None) -> Snapshot | None:
        """Sum up the seconds before an epoch's end."""
        if epoch is None:
            return recent_load(tuple(self._recent))
        at = self._track.index(epoch)
        if at is None:
            return None
        times = self._track.whole["time"]
        first = max(0, at - 20)
        near = [i for i in range(first, at + 1) if times[at] - LAST_SECONDS < times[i] <= times[at]] or [at]
        found = [s for i in near if (s := _snapshot(self._snapshots.line(self._track.places[i]))) is not None]
        return recent_load(found)


def _snapshot(line: bytes) -> Snapshot | None:
    """Parse a line; None if a crash cut it short, or if it is damaged."""
    try:
        found = Snapshot.from_json(parsed(line))
        found.levels  # noqa: B018 - a subquery that takes rows from one that is not there is damaged too
        return found
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _decision(line: bytes) -> dict[str, Any] | None:
    try:
        record = parsed(line)
        decisions_of([record])
        return record if isinstance(record, dict) else None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _samples(line: bytes) -> list[dict[str, Any]]:
    try:
        record = parsed(line)
        words = ("source", "outcome", "reason", "row")
        return [{"at": float(record["at"])} | {w: str(row[w]) for w in words} for row in record["rows"]]
    except (ValueError, KeyError, TypeError):
        return []
