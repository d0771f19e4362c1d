"""Copies of checkpoints: to another store (backup), from one (restore), and by hard links on the same disk.

Files go first, then manifests, and what makes a folder a checkpoint last: a copy that is cut short does not count as one, and copying again completes it.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from springtide.state.checkpoint import Checkpoint, marker_of
from springtide.state.errors import AwayError, CheckpointError
from springtide.state.log import Log, Slot
from springtide.state.manifest import Manifest
from springtide.state.names import HISTORY, MANIFESTS, MARKER, PUBLISHED, SAVEPOINTS, SPARK, STATE
from springtide.state.published import Published
from springtide.state.pulse import is_heard
from springtide.state.read_only import ReadOnlyCheckpoint, Source, made_durable, opened, store_of
from springtide.state.spark_records import number_of, valid_files
from springtide.state.stores import Store

Progress = Callable[[int, int], None]
"""Called with how many bytes are done, and of how many."""

_TRIES = 5
_FORGOTTEN = 86_400
"""Seconds after which what was held for somebody who reads is removed."""
_AT_ONCE = 4


@dataclass(frozen=True)
class Copied:
    """What a copy contains."""

    epochs: tuple[int, ...]
    files: int
    bytes: int
    there: int
    """Files that the other place already had."""


def backup(source: Source, to: str | Path | Store, progress: Progress | None = None) -> Copied:
    """Copy a checkpoint to another store. What is already there is not copied again; nothing is removed (see `trim`).

    Of a running query, the newest epoch is copied; otherwise every epoch that is kept.
    """
    target = Store.at(to)
    made_durable(source)
    with opened(source) as found, pinned(found) as checkpoint:
        manifests = checkpoint.chain()
        if checkpoint is found:
            older = [m for m in found.history() if m.epoch < manifests[0].epoch]
            manifests = [*(m for m in older if found.whole(m)), *manifests]
        _check_target(found, target, manifests[-1].epoch)
        log = Log(target)
        if claims := log.read().claims():  # of whoever trimmed it: they are about the epochs that were there
            log.forget_claims(claims, ())
        return copy(checkpoint, manifests, target, history=True, progress=progress)


def restore(source: Source, to: str | Path | Store, at: int | None = None, progress: Progress | None = None) -> Copied:
    """Make a new checkpoint from one at rest, a backup or a savepoint: from its newest epoch, or from epoch `at`.

    The new one must be empty. A query that is started with it continues after that epoch.
    """
    target = Store.at(to)
    if target.list():
        raise CheckpointError(target.url, "is not empty", "give an empty or a new folder; nothing was changed")
    with opened(source) as found, pinned(found, at) as checkpoint:
        newest, manifests = found.epochs()[-1:] == [at] or at is None, checkpoint.chain(at)
        lineage = checkpoint.lineage().copied(manifests[-1].epoch)
        marker = marker_of(checkpoint.first_identity(), lineage)
        return copy(checkpoint, manifests, target, outbox=newest, history=newest, identity=marker, progress=progress)


def _check_target(source: ReadOnlyCheckpoint, target: Store, newest: int) -> None:
    """Refuse to mix two checkpoints."""
    if not target.exists(MARKER):
        if target.list(STATE) or target.list(MANIFESTS):
            return  # a first copy that was cut short
        if target.list():
            raise CheckpointError(target.url, "is not empty and not a Springtide checkpoint", "give an empty folder")
        return
    if target.read(MARKER) != source.marker():
        raise CheckpointError(
            target.url, f"is the backup of another checkpoint than {source.store.url}", "give it a place of its own"
        )
    if Checkpoint(target).in_use() if target.local is not None else is_heard(target):
        raise CheckpointError(target.url, "is in use", "stop its run, or give another place for this backup")
    theirs = max(Log(target).tail().epochs(), default=-1)
    if theirs > newest:
        raise CheckpointError(
            target.url,
            f"is at epoch {theirs}, ahead of {source.store.url} at epoch {newest}: another run continued from it",
            "give another place for this backup",
        )


# ── copying ───────────────────────────────────────────────────────────────────────────────────────────────────────


def copy(
    source: ReadOnlyCheckpoint,
    manifests: Sequence[Manifest],
    target: Store,
    *,
    link: bool = False,
    outbox: bool = True,
    history: bool = False,
    identity: bytes | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copy epochs with all that a start needs. With `link`, files on the same disk are not copied but get a second name."""
    newest = manifests[-1]
    there = target.files()
    wanted = {
        s.file: (m, s) for m in manifests for s in m.segments() if source.has(m, s)
    }  # a replay rebuilds the others
    plain = sorted({f for m in manifests for f in (*m.buffers(), *m.ledgers())})
    plain += [d.file for d in newest.outbox] if outbox else []
    plain = [f for f in plain if source.store.exists(f)] if plain else []  # a sink may have moved its file
    if newest.batch is not None:
        plain += offsets_of(source, newest.batch)
    published = _published(source, newest) if outbox else None
    sizes = {file: segment.bytes for file, (_, segment) in wanted.items()} | {f: source.store.size(f) for f in plain}
    missing = [file for file, size in sizes.items() if there.get(file) != size]
    done, total = 0, sum(sizes[file] for file in missing)

    def one(file: str) -> int:
        if file in wanted:
            _transfer(source.find(*wanted[file]), file, target, link=link)
        elif source.remote is not None:
            source.store.fetch(file, source.root / file)
            _transfer(source.root / file, file, target, link=link)
        else:
            _transfer(source.root / file, file, target, link=link)
        return sizes[file]

    with ThreadPoolExecutor(_AT_ONCE, "springtide-copy") as pool:
        for size in pool.map(one, missing):
            done += size
            if progress is not None:
                progress(done, total)
    if history:
        for file, size in source.store.files(HISTORY).items():
            if there.get(file) != size:
                target.write(file, source.store.read(file))
    written = 0
    records = [slot_of(m).path for m in manifests]
    for manifest, name in zip(manifests, records, strict=True):
        data = alone(manifest, outbox=outbox and manifest is newest).encode()
        if name not in there or target.read(name) != data:
            target.write(name, data)
            written += 1
    more = [PUBLISHED] if published is not None else []
    if published is not None:
        target.write(PUBLISHED, published.encode())
    target.flush_names([*sizes, *records, *more])
    marker = identity or source.marker()
    if MARKER not in there or identity is not None:
        target.write(MARKER, marker)  # now it is a checkpoint
        target.flush_names([MARKER])
    return Copied(tuple(m.epoch for m in manifests), len(missing) + written, total, len(sizes) - len(missing))


def slot_of(manifest: Manifest) -> Slot:
    """Return the slot of a manifest in a copy, whose log has only the epochs that are kept."""
    return Slot(manifest.epoch, manifest.generation)


def alone(manifest: Manifest, *, outbox: bool) -> Manifest:
    """Return a manifest as it is in a copy: the shared memory belongs to the original, and rows that sinks have are not published again."""
    log = manifest.log and replace(manifest.log, shared_memory=None)
    return replace(manifest, log=log) if outbox else replace(manifest, log=log, outbox=(), published=True)


def _published(source: ReadOnlyCheckpoint, newest: Manifest) -> Published | None:
    """Return which sinks have the rows of the copied epoch; None: all of them, or it was not recorded."""
    try:
        found = Published.decode(source.store.read(PUBLISHED))
    except FileNotFoundError:
        return None
    return None if found is None or found.epoch > newest.epoch else found


def _transfer(path: Path, file: str, target: Store, *, link: bool) -> None:
    if link and target.local is not None:
        place = target.local / file
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, place)
            return
        except FileExistsError:
            return
        except OSError:  # another disk, or one without hard links
            pass
    target.put(path, file)


def offsets_of(source: ReadOnlyCheckpoint, batch: int) -> list[str]:
    """Return the files in which Spark recorded what it read, up to a micro-batch."""
    logs: dict[str, dict[int, str]] = {}
    found = []
    for record, file in valid_files(source.store.list(SPARK)).items():
        number = number_of(record)
        if number is None:
            found.append(file)
        else:
            logs.setdefault(record.rpartition("/")[0], {})[number] = file
    for folder, files in logs.items():
        if batch not in files and folder != "commits" and max(files) > batch:
            raise CheckpointError(
                source.store.url,
                f"cannot go back to micro-batch {batch}: Spark has cleaned up what {SPARK}/{folder} says of it",
                "take a later epoch",
            )
        found += [file for number, file in files.items() if number <= batch]
    return found


# ── of a running query ────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def pinned(checkpoint: ReadOnlyCheckpoint, at: int | None = None) -> Iterator[ReadOnlyCheckpoint]:
    """Hold the newest epoch of a checkpoint that is in use, or epoch `at`, by hard links or copies in its store; one that is not in use is read as it is."""
    if not (checkpoint.in_use() if checkpoint.remote is None else is_heard(checkpoint.remote)):
        yield checkpoint
        return
    if checkpoint.remote is not None:
        with _pinned_there(checkpoint, at) as own:
            yield own
        return
    folder = checkpoint.root / SAVEPOINTS / f".pin-{uuid.uuid4().hex[:8]}"
    try:
        link_to(checkpoint, folder, at)
        yield ReadOnlyCheckpoint(Store.at(folder), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _pinned_there(checkpoint: ReadOnlyCheckpoint, at: int | None) -> Iterator[ReadOnlyCheckpoint]:
    """Hold an epoch by copies that the store makes; who may only read must be quicker than the run."""
    store, folder = checkpoint.store, f"{SAVEPOINTS}/.pin-{uuid.uuid4().hex[:8]}"
    place = store.under(folder)
    try:
        place.check_writable()
    except AwayError:
        raise
    except CheckpointError:
        yield checkpoint
        return
    try:
        _forget_old_pins(store)
        place.write(MARKER, copy_there(store, folder, at))
        with opened(place) as own:
            yield own
    finally:
        with suppress(OSError, CheckpointError):
            place.delete(*place.list())


def _forget_old_pins(store: Store) -> None:
    """Remove what was left by those who died while they read."""
    found = {path: info.modified / 1e9 for path, info in store.infos(SAVEPOINTS).items() if "/.pin-" in path}
    store.delete(*(path for path, at in found.items() if time.time() - at > _FORGOTTEN))


def copy_there(store: Store, folder: str, at: int | None = None, *, outbox: bool = True) -> bytes:
    """Have a store copy the newest epoch, or epoch `at`, of the checkpoint in it to a folder of it; return what makes that a checkpoint once it is written there.

    The run may go on meanwhile, and remove what it does not need any more: then the newest epoch by then is copied.
    """
    place = store.under(folder)
    for tries in range(1, _TRIES + 1):
        try:
            with opened(store) as found:
                manifests = found.chain(at)
                newest = manifests[-1]
                files = {s.file for m in manifests for s in m.segments() if found.has(m, s)}
                files |= {f for m in manifests for f in (*m.buffers(), *m.ledgers())}
                files |= set(offsets_of(found, newest.batch)) if newest.batch is not None else set()
                files |= {d.file for d in newest.outbox if outbox and store.exists(d.file)}
                with ThreadPoolExecutor(_AT_ONCE, "springtide-copy") as pool:
                    for _ in pool.map(lambda file: store.copy(file, f"{folder}/{file}"), sorted(files)):
                        pass
                published = _published(found, newest) if outbox else None
                if published is not None:
                    place.write(PUBLISHED, published.encode())
                # Once there is a later epoch, sinks have the rows of this one, and what was on its way to them may be gone.
                waits = outbox and Log(store).tail().epochs()[-1:] == [newest.epoch]
                for manifest in manifests:
                    data = alone(manifest, outbox=waits and manifest is newest).encode()
                    place.write(slot_of(manifest).path, data)
                return found.marker()
        except (CheckpointError, FileNotFoundError):
            if tries == _TRIES:
                raise
            place.delete(*place.list(MANIFESTS))
    raise AssertionError


def link_to(checkpoint: ReadOnlyCheckpoint, folder: Path, at: int | None = None, *, outbox: bool = True) -> int:
    """Link the newest epoch, or epoch `at`, to a folder; the query that has the checkpoint may continue meanwhile. Return the epoch."""
    for tries in range(1, _TRIES + 1):
        try:
            manifests = checkpoint.chain(at)
            target, newest = Store.at(folder), manifests[-1]
            copy(checkpoint, manifests, target, link=True, outbox=outbox)
            # Once there is a later epoch, sinks have the rows of this one, and what was on its way to them may be gone.
            if checkpoint.epochs()[-1] > newest.epoch:
                target.write(slot_of(newest).path, alone(newest, outbox=False).encode())
            return newest.epoch
        except (CheckpointError, FileNotFoundError):
            if tries == _TRIES or not checkpoint.in_use():
                raise
            shutil.rmtree(folder, ignore_errors=True)
    raise AssertionError


def root_of(source: Source) -> Path:
    """Return the folder of a checkpoint that must be one of this machine."""
    store = store_of(source)
    if store.local is None:
        raise CheckpointError(store.url, "is not a folder of this machine", "restore it to one first")
    return store.local
