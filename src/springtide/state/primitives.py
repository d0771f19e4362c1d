"""State as a value (SE-1), and what can be done with it (SE-2), under SEEP's names.

    checkpoint    read it: processing state θ with its timestamp vector τ, buffer state β, routing state ρ
    partition     cut the processing state of a step into k parts: by hash, by key range, or by observed load
    merge         put parts together again
    backup        copy a checkpoint to another store
    restore       make a checkpoint of a copy
    trim          forget old epochs, never what a replay needs
    replay        say which epochs a start does again, and with what
    spill         free shared memory: segments go to disk
    persist       segments go to an object store; disks may then forget them

Each works on a checkpoint at rest, by its folder or address, and on a run. State is columnar, a frame for each kind of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from springtide.query.errors import SpringtideError
from springtide.state.bucket_map import BucketMap
from springtide.state.claims import new_token, take
from springtide.state.copying import Progress, backup, pinned, restore, root_of
from springtide.state.errors import CheckpointError
from springtide.state.history import History
from springtide.state.links import refuse_links
from springtide.state.log import Log
from springtide.state.manifest import Manifest, SourceState
from springtide.state.names import BUFFER, STATE
from springtide.state.processing import PLACE, ProcessingState, merge, partition
from springtide.state.pulse import is_heard
from springtide.state.read_only import ReadOnlyCheckpoint, Source, files_of, made_durable, opened, store_of
from springtide.state.segment import read_segment
from springtide.state.shapes import each, listed, may, record, whole
from springtide.state.stores import Store

__all__ = [
    "Checkpointed",
    "ProcessingState",
    "backup",
    "checkpoint",
    "merge",
    "partition",
    "persist",
    "replay",
    "restore",
    "spill",
    "trim",
]

_OBSERVED = 100
"""How many epochs the observed load is taken from."""


@dataclass(frozen=True)
class Checkpointed:
    """The state of a query after an epoch."""

    query: str
    epoch: int
    processing: dict[str, ProcessingState]
    """θ by step."""
    times: dict[str, SourceState]
    """τ of the whole query: how far each source was read."""
    buffer: tuple[Manifest, ...] = ()
    """β: epochs whose state is not durable, with what they took in (`log`); empty if every epoch is durable."""
    routing: dict[str, BucketMap] = field(default_factory=dict)
    """ρ of every subquery."""


def checkpoint(source: Source, at: int | None = None) -> Checkpointed:
    """Read the state of a query: after its newest epoch, or after epoch `at`.

    If the state of that epoch is not durable, the processing state is that of the last epoch whose state is, and the buffer state is what came
    in since. That of a running query is made durable first.
    """
    made_durable(source)
    with opened(source) as found, pinned(found, at) as own:
        chain = own.chain(at)
        manifest, name = chain[0], own.identity()
        layouts = name.get("state", {})
        loads = _loads(History(found.root))
        states = {
            step: ProcessingState(
                step,
                _rows(own, manifest, step),
                stored.marks,
                manifest.maps[step],
                tuple(layouts.get(step, {}).get("keys", ())),
                loads.get(step, ()),
                tuple(range(len(manifest.maps[step].owners))),
            )
            for step, stored in manifest.state.items()
        }
        return Checkpointed(
            name["query"], manifest.epoch, states, manifest.sources, tuple(chain[1:]), dict(manifest.maps)
        )


def _rows(own: ReadOnlyCheckpoint, manifest: Manifest, step: str) -> dict[str, pl.DataFrame]:
    pieces: dict[str, list[pl.DataFrame]] = {}
    for number, segment in enumerate(manifest.state[step].segments):
        frame = read_segment(own.find(manifest, segment))
        place = pl.int_range(frame.height, dtype=pl.UInt64, eager=True) + (number << 32)
        pieces.setdefault(segment.kind, []).append(frame.with_columns(place.alias(PLACE)))
    return {kind: pl.concat(frames, rechunk=False) for kind, frames in pieces.items()}


_SNAPSHOT = record(subqueries=each(record(bucket_rows=may(listed(whole())))))


def _loads(history: History) -> dict[str, tuple[int, ...]]:
    """Sum up the rows that came for each bucket in the last epochs, as far as these had as many buckets as the newest map."""
    sums: dict[str, np.ndarray] = {}
    for snapshot in reversed(history.read("snapshots", _OBSERVED)):
        try:
            _SNAPSHOT("snapshot", snapshot)
        except ValueError:  # a damaged line; the history is for people, and need not be complete
            continue
        for step, load in snapshot["subqueries"].items():
            seen = np.array(load.get("bucket_rows", ()), dtype=np.int64)
            if seen.size and sums.setdefault(step, np.zeros_like(seen)).size == seen.size:
                sums[step] = sums[step] + seen
    return {step: tuple(seen.tolist()) for step, seen in sums.items()}


# ── what may go, and what is done again ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Trimmed:
    """What was forgotten."""

    epochs: tuple[int, ...]
    files: int


def trim(source: Source, keep: int) -> Trimmed:
    """Forget all but the last `keep` epochs whose state is whole, and what only the forgotten ones speak of.

    What a replay needs stays: every epoch since the last whole one, and what it took in. A running query trims its own checkpoint. One that is
    not known to run, since its node is cut off or this is its backup, can commit nothing more: what it has just written may be removed.
    """
    if keep < 1:
        raise SpringtideError(f"keep={keep} would leave no checkpoint; give at least 1")
    with opened(source) as found:
        if found.in_use() if found.remote is None else is_heard(found.remote):
            raise CheckpointError(found.store.url, "is in use", "the run trims it: give it `retain`, or stop it first")
        if found.remote is None:
            refuse_links(found.root)
        kept = found.history()
        whole = [m.epoch for m in kept if found.whole(m, shared_memory=False)]
        if not whole:
            return Trimmed((), 0)
        stays = [m for m in kept if m.epoch in whole[-keep:] or m.epoch > whole[-1]]
        goes = [m for m in kept if m not in stays]
        needed = files_of(stays)

        def left() -> list[str]:
            return [f for f in (*found.store.list(STATE), *found.store.list(BUFFER)) if f not in needed]

        if not goes and not left():
            return Trimmed((), 0)
        log = Log(found.store)
        records = log.read()
        lease = take(log, records, new_token()) if records.epochs()[-1:] == [kept[-1].epoch] else None
        if lease is None:
            raise CheckpointError(found.store.url, "is in use", "its run has just committed an epoch; stop it first")
        useless = left()
        lease.check()  # after the listing: what a newer run writes is not in it
        slots = [slot for manifest in goes for slot in lease.epochs.get(manifest.epoch, ())]
        log.note_forgotten(slots, lease.ends)
        log.forget(slots)  # first: what a manifest names exists as long as the manifest does
        found.store.delete(*useless)
        return Trimmed(tuple(m.epoch for m in goes), len(useless))


@dataclass(frozen=True)
class Replay:
    """What a start does again."""

    base: int
    """The epoch whose state is whole."""
    epochs: tuple[int, ...]
    """Those that are done again, silently: sinks have their rows."""
    rows: int
    """Rows that are read again from the sources; what cannot be read again is in buffers."""
    buffers: tuple[str, ...]


def replay(source: Source) -> Replay:
    """Return what a start with this checkpoint replays: the epochs after the last whole one, with what they took in (β)."""
    with opened(source) as found, pinned(found) as own:
        base, *again = own.chain()
        return Replay(
            base.epoch,
            tuple(m.epoch for m in again),
            sum(m.log.rows for m in again if m.log is not None),
            tuple(sorted(set().union(*(m.buffers() for m in again)))),
        )


# ── tiers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def spill(source: Source) -> int:
    """Bring the segments that are in shared memory to disk, and give the memory back; return the bytes that were freed.

    A running query needs its memory: its segments get to disk, and none is freed.
    """
    if made_durable(source):
        return 0
    own = _own(source)
    freed = 0
    for manifest in own.history():
        tiers = own.tiers(manifest)
        memory = Path(tiers.shared_memory) if tiers.shared_memory is not None else None
        copies = {s: memory / s.file for s in manifest.segments() if memory is not None and (memory / s.file).exists()}
        tiers.persist(copies)
        for copy in copies.values():
            freed += copy.stat().st_size
            copy.unlink()
    return freed


def persist(source: Source, to: str | Path | Store, *, free: bool = False, progress: Progress | None = None) -> int:
    """Bring the segments of a checkpoint to a store, where they keep their names; return the bytes that went there.

    With `free` the disk forgets them: a query that is started with this store as its backup fetches those that it needs.
    """
    made_durable(source)
    if free:
        _own(source)
    target = Store.at(to)
    with opened(source) as found, pinned(found) as own:
        wanted = {s.file: (m, s) for m in own.history() if own.whole(m) for s in m.segments()}
        there = target.files(STATE)
        missing = {f: s.bytes for f, (_, s) in wanted.items() if there.get(f) != s.bytes}
        done = 0
        for file, size in missing.items():
            target.put(own.find(*wanted[file]), file)
            done += size
            if progress is not None:
                progress(done, sum(missing.values()))
        for file in wanted if free else ():
            (own.root / file).unlink(missing_ok=True)
        return done


def _own(source: Source) -> ReadOnlyCheckpoint:
    root = root_of(source)
    own = ReadOnlyCheckpoint(store_of(source), root)
    own.identity()
    if own.in_use():
        raise CheckpointError(str(root), "is in use", "its run moves segments itself (durability); stop it first")
    refuse_links(root)
    return own
