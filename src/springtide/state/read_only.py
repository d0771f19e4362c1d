"""A checkpoint wherever it is: a folder, a store, or that of a query at work. For reading only.

What a running query has is seen through a pin: hard links to the files of its newest epoch, which its clean-up leaves alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from springtide.state import private
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.log import Log
from springtide.state.manifest import Manifest
from springtide.state.names import MANIFESTS, MARKER, STATE
from springtide.state.segment import Segment
from springtide.state.stores import Store
from springtide.state.tiers import Tiers


@runtime_checkable
class Running(Protocol):
    """A query at work: what `query.start` gives."""

    @property
    def active(self) -> bool:
        """Whether it is still at work."""
        ...

    @property
    def checkpoint_store(self) -> Store:
        """Where its checkpoint is."""
        ...

    def checkpoint_now(self) -> int:
        """Make its state durable; return the epoch that it is of."""
        ...


Source = str | Path | Store | Running
"""A checkpoint: its folder, its address, or the run that has it."""


def store_of(source: Source) -> Store:
    """Return where a checkpoint is."""
    return Store.at(source.checkpoint_store if isinstance(source, Running) else source)


def made_durable(source: Source) -> bool:
    """Have a running query make its state durable; False when there is none at work."""
    if not isinstance(source, Running) or not source.active:
        return False
    source.checkpoint_now()
    return True


class ReadOnlyCheckpoint(Checkpoint):
    """A checkpoint that is read, under the name that people know it by."""

    def __init__(self, store: Store, root: Path) -> None:
        """`root` has its small files; segments are there too, or come from the store when they are asked for."""
        super().__init__(root)
        self.store = store
        self._elsewhere = store.local != root

    @property
    def remote(self) -> Store | None:
        """The store that segments come from, where that is not the folder."""
        return self.store if self._elsewhere else None

    def tiers(self, manifest: Manifest) -> Tiers:
        """Return where the files of an epoch are."""
        memory = private.left(manifest.log and manifest.log.shared_memory, self.root)
        return Tiers(str(self.root), memory, self.remote)

    def find(self, manifest: Manifest, segment: Segment) -> Path:
        """Return a whole copy of a segment on this machine."""
        try:
            return self.tiers(manifest).find(segment)
        except CheckpointError as error:
            raise CheckpointError(self.store.url, error.problem, error.hint) from None

    def has(self, manifest: Manifest, segment: Segment, *, shared_memory: bool = True) -> bool:
        """Return whether a segment of an epoch is there and whole; without `shared_memory` one that is only in shared memory does not count."""
        if self.remote is not None:
            return self._sizes.get(segment.file) == segment.bytes
        tiers = self.tiers(manifest)
        return (tiers if shared_memory else replace(tiers, shared_memory=None)).nearest(segment) is not None

    def whole(self, manifest: Manifest, *, shared_memory: bool = True) -> bool:
        """Return whether all segments of an epoch are there."""
        return all(self.has(manifest, segment, shared_memory=shared_memory) for segment in manifest.segments())

    def chain(self, at: int | None = None) -> list[Manifest]:
        """Return the manifests that a start at an epoch needs: its own, and where its state was never durable all since the last that was."""
        epochs = self.epochs()
        if not epochs:
            raise self._error("has no epoch that is committed", "let the query run first")
        wanted = epochs[-1] if at is None else at
        found = [self.manifest(wanted)]
        while not self.whole(found[0]):
            before = [e for e in epochs if e < found[0].epoch]
            if found[0].log is None or not before:
                kept = ", ".join(str(e) for e in epochs if self.whole(self.manifest(e))) or "none"
                raise self._error(
                    f"lacks segments of epoch {wanted}",
                    f"take an epoch whose state is whole ({kept}); springtide checkpoint verify says what is lost",
                )
            found.insert(0, self.manifest(before[-1]))
        return found

    @property
    def _sizes(self) -> dict[str, int]:
        if "_known" not in self.__dict__:
            self._known = self.store.files(STATE)
        return self._known

    def _error(self, problem: str, hint: str) -> CheckpointError:
        return CheckpointError(self.store.url, problem, hint)


@contextmanager
def opened(source: Source) -> Iterator[ReadOnlyCheckpoint]:
    """Read a checkpoint as it is. Of one in another store the small files are fetched first."""
    store = store_of(source)
    if store.local is not None:
        yield ReadOnlyCheckpoint(store, store.local)
        return
    with tempfile.TemporaryDirectory(prefix="springtide-") as folder:
        root = Path(folder)
        if store.exists(MARKER):
            store.fetch(MARKER, root / MARKER)
        for slot, data in Log(store).read().data.items():
            (root / MANIFESTS).mkdir(exist_ok=True)
            (root / slot.path).write_bytes(data)
        yield ReadOnlyCheckpoint(store, root)


def files_of(manifests: Sequence[Manifest]) -> set[str]:
    """Return the segments and buffers of some epochs."""
    return set().union(*(m.files() | m.buffers() for m in manifests)) if manifests else set()
