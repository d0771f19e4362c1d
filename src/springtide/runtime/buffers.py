"""Buffer state (SE-1): what went into the epochs since the last checkpoint, kept so that they can be done again.

    input that can be read again    its slices are in the manifest (`log`), and a replay reads them
    input that cannot               the blobs that the prefix made of it are in files, and a replay sends them

Rows that Spark read are of the second kind, and those of inputs that were attached. A blob knows the buckets of its tuples, not their
owners: a replay distributes them by the bucket maps of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from springtide.connectors import Slice
from springtide.exchange import gate
from springtide.exchange.blob import Blob
from springtide.query.ids import InstanceId
from springtide.runtime.epoch import Epoch, EpochInput, TaskReport
from springtide.state import names
from springtide.state.manifest import EpochLog

# ── in a task ─────────────────────────────────────────────────────────────────────────────────────────────────────


def buffer(epoch: Epoch, subquery: str, instance: InstanceId, blob: Blob) -> str:
    """Keep what an instance of a prefix sends; return the file's name."""
    file = names.blob(epoch.number, subquery, instance, uuid.uuid4().hex[:8])
    path = epoch.tiers.here / file
    path.parent.mkdir(parents=True, exist_ok=True)
    data = blob.encode()
    epoch.tiers.with_room(lambda: path.write_bytes(data))
    return epoch.tiers.settle(file)


def sent_before(epoch: Epoch, subquery: str, instance: InstanceId) -> Iterator[Blob]:
    """Return the blobs that an instance of a prefix has to send again."""
    return (Blob.decode(epoch.tiers.fetched(file).read_bytes()) for file in epoch.replayed[subquery][instance])


# ── in the driver ─────────────────────────────────────────────────────────────────────────────────────────────────


def cannot_be_read_again(slices: Sequence[Sequence[Slice]]) -> bool:
    """Return whether any of these slices can be read by this process alone."""
    return any(part.reader is not None or not _is_plain(part.data) for parts in slices for part in parts)


def record(epoch: Epoch, reports: Sequence[TaskReport], *, idle: bool) -> EpochLog:
    """Return what an epoch took in, for its manifest. `idle`: streams were found idle, so the epoch must not be merged with others."""
    slices = {name: parts for name, parts in epoch.slices.items() if name not in epoch.buffered}
    buffers = {
        name: [list(r.buffers) for r in sorted(reports, key=lambda r: r.instance) if r.subquery == name]
        for name in epoch.buffered
    }
    return EpochLog(
        epoch.times,
        epoch.greatest,
        {name: [[_written(s) for s in part] for part in parts] for name, parts in slices.items()},
        buffers,
        sum(s.rows for parts in slices.values() for part in parts for s in part),
        idle,
        epoch.tiers.shared_memory,
    )


def joined(logs: Sequence[EpochLog]) -> EpochInput:
    """Return the input of several epochs as that of one."""
    slices: dict[str, tuple[tuple[Slice, ...], ...]] = {}
    buffers: dict[str, tuple[tuple[str, ...], ...]] = {}
    for log in logs:
        for name, parts in log.slices.items():
            read = tuple(tuple(Slice(**s) for s in part) for part in parts)
            slices[name] = _beside(slices.get(name, ()), read)
        for name, files in log.buffers.items():
            buffers[name] = _beside(buffers.get(name, ()), tuple(tuple(f) for f in files))
    times = gate.later({}, [log.times for log in logs])
    return EpochInput(times, gate.greatest({}, [log.greatest for log in logs]), slices, buffers)


def _beside(first: tuple[tuple[Any, ...], ...], then: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
    """Give each instance the one input and then the other."""
    width = max(len(first), len(then))
    padded = [(*parts, *((),) * (width - len(parts))) for parts in (first, then)]
    return tuple((*a, *b) for a, b in zip(*padded, strict=True))


def _written(part: Slice) -> dict[str, Any]:
    return {name: value for name, value in asdict(part).items() if name not in ("reader", "arrived")}


def _is_plain(data: Any) -> bool:
    """Return whether a value survives a round trip through JSON, apart from tuples, which become lists."""
    if isinstance(data, list | tuple):
        return all(map(_is_plain, data))
    if isinstance(data, dict):
        return all(isinstance(key, str) and _is_plain(value) for key, value in data.items())
    return data is None or isinstance(data, bool | int | float | str)
