"""Checks every file of a checkpoint, and says exactly what was in each that is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from springtide.query.plurals import plural
from springtide.state.accounts import imbalances
from springtide.state.errors import CheckpointError
from springtide.state.ledgers import damaged_ledgers, unlisted_files
from springtide.state.log import Log
from springtide.state.manifest import Manifest
from springtide.state.names import BUFFER, MARKER, SAVEPOINTS, savepoint
from springtide.state.read_only import ReadOnlyCheckpoint, Source, opened
from springtide.state.segment import Segment, checksum, read_segment
from springtide.state.stores import Store

Progress = Callable[[int, int], None]
"""Called with how many files have been checked, and of how many."""


@dataclass(frozen=True)
class Damage:
    """A file that is damaged or missing."""

    file: str
    problem: str
    holds: str
    """What is in it, or was."""


@dataclass(frozen=True)
class Verified:
    """What was found."""

    epochs: tuple[int, ...]
    files: int
    bytes: int
    damaged: tuple[Damage, ...]
    again: tuple[int, ...] = ()
    """Epochs whose state is not durable; a start rebuilds it."""
    savepoints: int = 0
    unaccounted: tuple[str, ...] = ()
    """What does not add up in the accounts of the newest epoch."""

    @property
    def lost(self) -> bool:
        """Whether anything is damaged."""
        return bool(self.damaged)


def verify(source: Source, progress: Progress | None = None) -> Verified:
    """Look at every manifest, segment and buffer of a checkpoint and of its savepoints."""
    with opened(source) as checkpoint:
        checkpoint.identity()
        found = _verify(checkpoint, progress)
        if checkpoint.remote is not None:
            return found
        folders = sorted(f for f in (checkpoint.root / SAVEPOINTS).glob("*") if not f.name.startswith("."))
        parts = [found]
        for folder in folders:
            try:
                inner = ReadOnlyCheckpoint(Store.at(folder), folder)
                inner.identity()
                parts.append(_verify(inner, progress))
            except CheckpointError as error:
                parts.append(Verified((), 1, 0, (Damage(MARKER, error.problem, f"savepoint {folder.name}"),)))
    named = [
        (found, ""),
        *((part, f"{savepoint(folder.name)}/") for part, folder in zip(parts[1:], folders, strict=True)),
    ]
    damaged = tuple(Damage(f"{prefix}{d.file}", d.problem, d.holds) for part, prefix in named for d in part.damaged)
    return Verified(
        found.epochs,
        sum(p.files for p in parts),
        sum(p.bytes for p in parts),
        damaged,
        found.again,
        len(folders),
        found.unaccounted,
    )


def _verify(checkpoint: ReadOnlyCheckpoint, progress: Progress | None) -> Verified:
    manifests: list[Manifest] = []
    unreadable: dict[int, str] = {}
    for epoch in checkpoint.epochs():
        try:
            manifests.append(checkpoint.manifest(epoch))
        except CheckpointError as error:
            unreadable[epoch] = error.problem
    segments = {s.file: (m, s) for m in reversed(manifests) for s in m.segments()}
    buffers = {f: m for m in manifests for f in m.buffers()}
    sizes = checkpoint.store.files(BUFFER) if buffers else {}
    problems: dict[str, str] = {}
    for number, (file, (manifest, segment)) in enumerate(segments.items(), 1):
        if (problem := problem_of(checkpoint, manifest, segment)) is not None:
            problems[file] = problem
        if progress is not None:
            progress(number, len(segments))
    unlisted = dict(damaged_ledgers(checkpoint.store, manifests))
    miscounted = list(unlisted_files(checkpoint.store, manifests[-1])) if manifests and not unlisted else []
    # A run may forget epochs meanwhile, each before its files: what is missing of those is not lost.
    slots = Log(checkpoint.store).slots()
    left = {slot.epoch for slot in slots}
    damaged = [
        Damage(slot.path, unreadable[slot.epoch], f"the commit record of epoch {slot.epoch}: positions, routing, marks")
        for slot in {slot.epoch: slot for slot in slots}.values()
        if slot.epoch in unreadable
    ]
    manifests = [m for m in manifests if m.epoch in left]
    segments = {s.file: (m, s) for m in reversed(manifests) for s in m.segments()}
    problems = {file: problem for file, problem in problems.items() if file in segments}
    buffers = {f: m for f, m in buffers.items() if m.epoch in left}
    again = _rebuilt(manifests, problems)
    for file, problem in problems.items():
        manifest, segment = segments[file]
        if problem != _MISSING or manifest.epoch not in again:
            damaged.append(Damage(file, problem, contents(checkpoint, manifest, segment)))
    for file, manifest in buffers.items():
        if not sizes.get(file):
            holds = f"what a prefix sent in epoch {manifest.epoch}, for a replay"
            damaged.append(Damage(file, "is empty" if file in sizes else _MISSING, holds))
    ledgers = {file: (count, crc) for m in manifests for file, (count, crc) in m.ledgers().items()}
    damaged += [
        Damage(file, unlisted[file], f"what became of {plural(count, 'file')} of a source")
        for file, (count, _) in ledgers.items()
        if file in unlisted
    ]
    total = sum(s.bytes for _, s in segments.values()) + sum(sizes.values())
    files = len(slots) + len(segments) + len(buffers) + len(ledgers) + 1
    unaccounted = (*imbalances(manifests[-1].accounts), *miscounted) if manifests else ()
    return Verified(tuple(m.epoch for m in manifests), files, total, tuple(damaged), again, unaccounted=unaccounted)


_MISSING = "is missing"
_EVER = -(2**63)
"""The slot of rows that belong to no time."""


def problem_of(checkpoint: ReadOnlyCheckpoint, manifest: Manifest, segment: Segment) -> str | None:
    """Return what is wrong with a segment; None if every copy is whole."""
    tiers = checkpoint.tiers(manifest)
    if checkpoint.remote is not None:
        if not checkpoint.remote.exists(segment.file):
            return _MISSING
        path = checkpoint.root / segment.file
        try:
            checkpoint.remote.fetch(segment.file, path)
            return _problem(path, segment)
        except FileNotFoundError:  # its run has just removed it
            return _MISSING
        finally:
            path.unlink(missing_ok=True)
    problems = [_problem(path, segment) for path in tiers.copies(segment)]
    return _MISSING if not problems else next((p for p in problems if p is not None), None)


def _problem(path: Path, segment: Segment) -> str | None:
    try:
        if (size := path.stat().st_size) != segment.bytes:
            return f"has {plural(size, 'byte')}, not {segment.bytes:,}"
        if segment.crc is not None and checksum(path) != segment.crc:
            return "is not what was written: its checksum does not match"
        rows = read_segment(path).height
    except FileNotFoundError:
        return _MISSING
    except CheckpointError as error:
        return error.problem
    return None if rows == segment.rows else f"has {plural(rows, 'row')}, not {segment.rows:,}"


def contents(checkpoint: ReadOnlyCheckpoint, manifest: Manifest, segment: Segment) -> str:
    """Return exactly what is in a segment, by its manifest and, where that can still be read, by its own directory."""
    step = next(name for name, state in manifest.state.items() if segment in state.segments)
    slots = f", slots {segment.low} … {segment.high}" if segment.low > _EVER else ""
    return (
        f"{plural(segment.rows, 'row')} of {segment.kind} of {step}, written in epoch {segment.epoch} by instance "
        f"{segment.instance}{slots}, {_buckets(checkpoint, manifest, step, segment)}"
    )


def _buckets(checkpoint: ReadOnlyCheckpoint, manifest: Manifest, step: str, segment: Segment) -> str:
    for path in checkpoint.tiers(manifest).copies(segment):
        try:
            with pa.memory_map(str(path)) as file:
                meta = pa.ipc.open_file(file).schema.metadata
                known = [entry[0] for entry in json.loads(meta[b"springtide"])["directory"]]
            return f"buckets {', '.join(runs(sorted(known)))}"
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
            continue
    owned = manifest.maps[step]
    if owned.version == segment.version:
        return f"of buckets {', '.join(runs(owned.buckets_of(segment.instance)))}"
    return f"of the buckets that instance {segment.instance} had under map {segment.version}"


def runs(numbers: Sequence[int]) -> Iterator[str]:
    """Write rising numbers briefly: those at equal distances together.

    >>> list(runs([0, 1, 2, 5, 8, 9, 11, 13, 15]))
    ['0–2', '5', '8–9', '11–15 by 2']
    """
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == step:
            end += 1
        if end - at < 2 and step > 1:  # two numbers that are apart are no run
            end = at
        by = f" by {step}" if step > 1 else ""
        yield str(numbers[at]) if end == at else f"{numbers[at]}–{numbers[end]}{by}"
        at = end + 1


def _rebuilt(manifests: list[Manifest], problems: dict[str, str]) -> tuple[int, ...]:
    """Return the newest epochs that lack segments and can be replayed: an older one is whole, and all since say what they took in."""
    found: list[int] = []
    for manifest in reversed(manifests):
        if not any(file in problems for file in manifest.files()):
            return tuple(reversed(found))
        if manifest.log is None:
            return ()
        found.append(manifest.epoch)
    return tuple(reversed(found)) if manifests and manifests[0].epoch == 0 else ()
