"""The backup of a checkpoint while it is in use: a store that has everything that a start on another machine needs.

    segments, outbox, buffer   as they are written, or with the next checkpoint
    spark/                     Spark's offsets, where Spark reads
    manifest N                 last: after this the backup has epoch N

A start with an empty folder goes on from there: manifests come at once, segments when they are first read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from springtide.state.checkpoint import Checkpoint, Lease
from springtide.state.errors import CheckpointError
from springtide.state.manifest import Manifest
from springtide.state.published import FILE as PUBLISHED
from springtide.state.stores import Store

_IDENTITY = "springtide.json"
_GENERATION = "generation"


class Mirror:
    """One checkpoint and its backup."""

    def __init__(self, checkpoint: Checkpoint, store: Store) -> None:
        """Name both; nothing is touched yet."""
        self._root, self._checkpoint, self._store = checkpoint.root, checkpoint, store
        self._there: set[str] = set()
        self._sweeper = ThreadPoolExecutor(1, "springtide-sweeper")
        """Removes files while the query goes on."""

    @property
    def url(self) -> str:
        """Where the backup is, without what is secret in the address."""
        return self._store.url

    # ── at the start of a run ─────────────────────────────────────────────────────────────────────────────────────

    def restore(self) -> bool:
        """Fill an empty checkpoint folder from the backup; True when that was done. What is in both must belong together."""
        if not self._store.exists(_IDENTITY):
            return False
        names = self._store.list("manifests")
        newest = max((int(Path(n).name) for n in names), default=-1)
        here = max(self._checkpoint.epochs(), default=-1)
        cut_short = not (self._root / _IDENTITY).exists()
        if here < 0 or cut_short:  # empty, made a moment ago, or a restore that did not come to its end
            known = [PUBLISHED] if self._store.exists(PUBLISHED) else []
            for file in (
                *names,
                *self._store.list("spark"),
                *known,
                _GENERATION,
                _IDENTITY,
            ):  # what makes it a checkpoint last
                self._store.fetch(file, self._root / file)
            return True
        theirs, ours = self._store.read(_IDENTITY), (self._root / _IDENTITY).read_bytes()
        if theirs != ours:
            raise CheckpointError(
                str(self._root), f"is not the one whose backup is in {self._store.url}", "give it a backup of its own"
            )
        if newest > here:
            raise CheckpointError(
                str(self._root),
                f"is at epoch {here}, behind its backup {self._store.url} at epoch {newest}: another run went on from the backup",
                "give an empty folder to go on from the backup, or another backup to go on from here",
            )
        return False

    def claim(self, lease: Lease) -> None:
        """Take the backup for this run: an older one is refused from now on."""
        self._store.write(_GENERATION, str(lease.generation).encode())
        self._store.put(self._root / _IDENTITY, _IDENTITY)

    def begin(self, keep: Container[str], manifests: Iterable[Manifest]) -> None:
        """Let the backup have what it lacks; of what it has too much, only what is in `keep` stays."""
        self._there = set(self._store.list("spark"))
        for file in (*self._store.list("state"), *self._store.list("buffer")):
            if file not in keep:
                self.remove(file)
        known = set(self._store.list("manifests"))
        for manifest in manifests:
            if f"manifests/{manifest.epoch:09d}" not in known:
                self._store.write(f"manifests/{manifest.epoch:09d}", manifest.encode())

    def generation(self) -> int:
        """Give the number of the last run that wrote to the backup."""
        try:
            return int(self._store.read(_GENERATION))
        except FileNotFoundError:
            return 0

    # ── with every epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, manifest: Manifest, lease: Lease) -> None:
        """Let the backup have an epoch whose files it has. A run that lost the backup to a newer one is refused."""
        if self.generation() != lease.generation:
            raise CheckpointError(
                self._store.url,
                "was taken over by a newer run",
                "this run is stale: start it again if it is the one you want",
            )
        if manifest.batch is not None:
            self._offsets()
        self._store.write(f"manifests/{manifest.epoch:09d}", manifest.encode())

    def put(self, file: str, lease: Lease) -> None:
        """Let the backup have a file of the checkpoint as it is now, unless a newer run has taken it."""
        if self.generation() == lease.generation:
            self._store.put(self._root / file, file)

    def remove(self, file: str) -> None:
        """Forget a file, some time soon. One that stays is found by the next start."""
        self._sweeper.submit(self._store.delete, file)

    def close(self) -> None:
        """Finish what is under way."""
        self._sweeper.shutdown(wait=True)

    def _offsets(self) -> None:
        """Take along what Spark wrote down of its sources."""
        folder = self._root / "spark"
        for path in folder.rglob("*"):
            name = path.relative_to(self._root).as_posix()
            if path.is_file() and not path.name.startswith(".") and name not in self._there:
                self._store.put(path, name)
                self._there.add(name)
