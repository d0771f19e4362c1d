"""Rows to the sinks: every sink is asked first whether it takes this run, then each epoch is given to one after the other.

open (all admit it, all let it in) → begin → publish* → close
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.query.errors import SinkError
from springtide.runtime.failpoints import failpoint
from springtide.runtime.patience import Patience, of_a_connector
from springtide.runtime.storage import Storage
from springtide.sinks.publication import Opened, Opener, Owner, Publication, Publisher, commit_of
from springtide.state.errors import CheckpointError, LostError
from springtide.state.manifest import Delivery
from springtide.state.published import Published

T = TypeVar("T")


class Publishing:
    """The sinks of one run."""

    def __init__(self, plan: Plan, storage: Storage, patience: Patience, note: Callable[[str], None]) -> None:
        """Name them; nothing is touched yet."""
        self._query, self._sinks = plan.graph.name, plan.graph.of_kind(steps.Sink)
        self._storage, self._patience, self._note = storage, patience, note
        self._opened: dict[str, Opened] = {}
        self._done = Published()

    # ── at the start ──────────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Let every sink in, or, if one refuses or rows would be lost, none."""
        remembered = self._storage.published
        self._check(remembered or Published())
        openers = {name: s.connector for name, s in self._sinks.items() if isinstance(s.connector, Opener)}
        owners = {name: self._owner(name, older=remembered is None) for name in openers}
        for name, opener in openers.items():
            self._ask(name, partial(opener.admit, owners[name]))
        for name, opener in openers.items():
            self._opened[name] = self._ask(name, partial(opener.open, owners[name], self._note))
        self._done = remembered or Published()

    def begin(self) -> None:
        """Publish what the last run may not have published. A new checkpoint begins to remember what was."""
        if self._storage.manifest.epoch < 0:
            self._storage.remember(self._done, durable=True)
        self.publish()

    def _check(self, remembered: Published) -> None:
        manifest, root = self._storage.manifest, str(self._storage.checkpoint.root)
        if remembered.epoch > manifest.epoch:
            self._storage.check()  # a run that took over meanwhile has gone on
            raise CheckpointError(
                root,
                f"has lost the manifest of epoch {remembered.epoch}, whose rows sinks have; the newest is of epoch {manifest.epoch}",
                f"restore manifests/{remembered.epoch:09d} from a copy; to go back for good: springtide checkpoint restore",
            )
        waiting = {d.sink for d in manifest.outbox if not remembered.has(manifest.epoch, d.sink)}
        if gone := sorted(waiting - self._sinks.keys()):
            raise CheckpointError(
                root,
                f"has rows of epoch {manifest.epoch} for {', '.join(gone)}, which the query does not have any more",
                "start the query once with the sinks that it had",
            )

    def _owner(self, sink: str, *, older: bool) -> Owner:
        manifest, storage = self._storage.manifest, self._storage
        waiting = self._waiting(sink)
        return Owner(
            self._query,
            sink,
            storage.checkpoint.lineage(),
            storage.lease.generation,
            manifest.epoch,
            commit_of([Path(d.file).name for d in waiting]) if waiting else None,
            older and not manifest.published,
        )

    # ── with every epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def publish(self) -> None:
        """Hand the rows of the last committed epoch to the sinks that do not have them."""
        manifest = self._storage.manifest
        if manifest.epoch < 0 or manifest.published:
            return
        if self._done.epoch < manifest.epoch:
            self._done = Published(manifest.epoch)
        for name, sink in self._sinks.items():
            if not self._done.has(manifest.epoch, name):
                self._attempt(name, partial(self._give, name, sink))
                self._done = Published(manifest.epoch, self._done.sinks | {name})
                failpoint("during-publish")
        self._storage.remember(self._done, durable=False)

    def close(self) -> None:
        """Make durable what was published, and that it was."""
        for name, opened in self._opened.items():
            self._attempt(name, opened.close)
        if self._opened or self._done.epoch >= 0:
            self._storage.remember(self._done, durable=True)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _give(self, name: str, sink: steps.Sink) -> None:
        deliveries = self._waiting(name)
        root = self._storage.checkpoint.root
        publisher = self._opened.get(name, sink.connector)
        assert isinstance(publisher, Publisher)
        self._storage.check()
        publisher.publish(
            Publication(
                name,
                self._storage.manifest.epoch,
                sink.schema,
                tuple(root / d.file for d in deliveries),
                tuple(d.rows for d in deliveries),
                partial(self._find, name),
            )
        )

    def _waiting(self, sink: str) -> Sequence[Delivery]:
        return [d for d in self._storage.manifest.outbox if d.sink == sink]

    def _find(self, sink: str, path: Path) -> Path:
        root = self._storage.checkpoint.root
        found = self._storage.tiers.fetched(path.relative_to(root).as_posix())
        if found.exists():
            return found
        self._storage.check()  # a run that took over has published it, and removed it since
        raise LostError(
            str(root),
            f"has lost rows of epoch {self._storage.manifest.epoch} for the sink {sink}: {found} is not there",
            "restore that file from a copy; on a cluster all executors and the driver must see the checkpoint's folder",
        )

    def _ask(self, sink: str, action: Callable[[], T]) -> T:
        try:
            return self._attempt(sink, action)
        except SinkError:
            self._storage.check()  # what the sink has may be of a run that took over meanwhile
            raise

    def _attempt(self, sink: str, action: Callable[[], T]) -> T:
        return self._patience.attempt(f"{sink} (sink)", action, of_a_connector)
