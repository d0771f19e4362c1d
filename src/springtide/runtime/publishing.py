"""Rows to the sinks: every sink is first asked whether it accepts this run, then each epoch is given to one sink after the other.

open (all admit the run, then all are opened) → begin → publish* → close
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from springtide.compiler.plan import Plan
from springtide.connectors import Owner, Publication, Sink, Writer, commit_of
from springtide.query import steps
from springtide.query.errors import SinkError, SpringtideError
from springtide.runtime.failpoints import failpoint
from springtide.runtime.patience import Patience, of_a_connector
from springtide.runtime.storage import Storage
from springtide.state import names
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
        self._checkpoint = ""
        connectors = {name: sink.connector for name, sink in self._sinks.items()}
        self._connectors = {name: sink for name, sink in connectors.items() if isinstance(sink, Sink)}
        self._writers: dict[str, Writer] = dict(self._connectors)
        """Each sink itself, until it is opened."""
        self._opened: dict[str, Writer] = {}
        self._done = Published()

    # ── at the start ──────────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Open all sinks, or none if one refuses or rows would be lost."""
        remembered = self._storage.published
        self._done = remembered or Published()
        self._check(self._done)
        self._checkpoint = self._storage.lineage.id
        owners = {name: self._owner(name, older=remembered is None) for name in self._connectors}
        for name, sink in self._connectors.items():
            self._ask(name, partial(sink.admit, owners[name]))
        for name, sink in self._connectors.items():
            self._opened[name] = self._ask(name, partial(sink.open, owners[name]))
        self._writers |= self._opened
        for name, writer in self._opened.items():
            self._look(name, writer)

    def begin(self) -> None:
        """Publish what the last run may not have published. A new checkpoint begins its record of what was published."""
        if self._storage.manifest.epoch < 0:
            self._storage.remember(self._done, durable=True)
        self.publish()

    # ── for another form of the query ─────────────────────────────────────────────────────────────────────────────

    def replace(self, before: Publishing) -> None:
        """Continue for another form of the query: first every new sink is asked, then the old ones that do not stay are closed, and the new ones are opened.

        They are closed before the new form is committed: after that, nobody would show what a sink still holds back if this process died. One that cannot
        be closed is an error for the same reason: no later start has that sink.
        """
        self._done, self._checkpoint = before._done, before._checkpoint
        stay = {n for n, s in self._connectors.items() if before._connectors.get(n) is s and before._has(n, self)}
        new = {name: sink for name, sink in self._connectors.items() if name not in stay}
        owners = {name: self._owner(name, older=False) for name in new}
        for name, sink in new.items():
            self._ask(name, partial(sink.admit, owners[name]))
        self._opened = {name: before._opened[name] for name in stay if name in before._opened}
        for name in before._only_of(self):
            before._close(name)
        for name, sink in new.items():
            self._opened[name] = self._ask(name, partial(sink.open, owners[name]))
        self._writers |= self._opened

    def open_again(self) -> None:
        """Reopen what was closed for another form, which was taken back."""
        for name, sink in self._connectors.items():
            if name not in self._opened:
                self._opened[name] = self._ask(name, partial(sink.open, self._owner(name, older=False)))
        self._writers |= self._opened

    def give_way_to(self, before: Publishing) -> None:
        """Close the sinks that only this form writes to, since it was taken back: they have no rows of it."""
        for name in self._only_of(before):
            try:
                self._close(name)
            except SpringtideError as error:
                self._note(str(error))

    def _only_of(self, other: Publishing) -> list[str]:
        """Return the names of open sinks that another form does not write to."""
        return [name for name, writer in self._opened.items() if other._opened.get(name) is not writer]

    def _has(self, name: str, other: Publishing) -> bool:
        return name in self._opened and self._sinks[name].schema == other._sinks[name].schema

    def _close(self, name: str) -> None:
        self._attempt(name, self._opened.pop(name).close)

    def _look(self, sink: str, writer: Writer) -> None:
        """Make sure that the last epoch is published again if a target has lost it."""
        epoch, commit = self._storage.manifest.epoch, self._commit(sink)
        given = self._done.given(sink, self._connectors[sink].describe())
        if commit is None or (epoch, commit) not in given or self._ask(sink, partial(writer.has, epoch, commit)):
            return
        self._note(f"step {sink} (sink): its target has lost the rows of epoch {epoch}; they are published again")
        self._done = self._done.without(sink)

    def _check(self, remembered: Published) -> None:
        manifest, root = self._storage.manifest, str(self._storage.checkpoint.root)
        if remembered.epoch > manifest.epoch:
            self._storage.check()  # a run that has taken over meanwhile may have continued
            raise CheckpointError(
                root,
                f"has lost the manifest of epoch {remembered.epoch}, whose rows sinks have; the newest is of epoch {manifest.epoch}",
                f"restore {names.manifest(remembered.epoch)} from a copy; to go back for good: springtide checkpoint restore",
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
        return Owner(
            self._query,
            sink,
            storage.lineage,
            storage.lease.generation,
            manifest.epoch,
            self._commit(sink),
            self._done.given(sink, self._connectors[sink].describe()),
            older and not manifest.published,
            schema=self._sinks[sink].schema,
            note=lambda text: self._note(f"step {sink} (sink): {text}"),
        )

    # ── with every epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def publish(self) -> None:
        """Hand the rows of the last committed epoch to the sinks that do not have them."""
        manifest = self._storage.manifest
        if manifest.epoch < 0 or manifest.published:
            return
        if self._done.epoch < manifest.epoch:
            self._forget(manifest.epoch - 1)
            self._done = replace(self._done, epoch=manifest.epoch, sinks=frozenset())
        for name, sink in self._sinks.items():
            if not self._done.has(manifest.epoch, name):
                self._attempt(name, partial(self._give, name, sink))
                self._done = self._done.after(manifest.epoch, name, sink.connector.describe(), self._commit(name))
                failpoint("during-publish")
        self._storage.remember(self._done, durable=False)

    def close(self) -> None:
        """Make the published rows durable, and the record that they were published."""
        failure: SpringtideError | None = None
        for name, writer in self._opened.items():
            try:
                self._attempt(name, writer.close)
            except SpringtideError as error:  # the others are still closed
                failure = failure or error
        if self._opened or self._done.epoch >= 0:
            self._storage.remember(self._done, durable=True)
        if failure is not None:
            raise failure

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _give(self, name: str, sink: steps.Sink, mark: str = "") -> None:
        files = self._files(name, self._waiting(name))
        self._storage.check()
        self._writers[name].publish(
            Publication(
                name,
                self._storage.manifest.epoch,
                sink.schema,
                tuple(path for path, _ in files),
                tuple(rows for _, rows in files),
                partial(self._find, name),
                self._query,
                self._checkpoint,
                mark,
            )
        )

    def _files(self, sink: str, deliveries: Sequence[Delivery]) -> Sequence[tuple[Path, int]]:
        """Return the files for a sink, with the number of rows in each."""
        root = self._storage.checkpoint.root
        return [(root / d.file, d.rows) for d in deliveries]

    def _forget(self, epoch: int) -> None:
        """Tell the sinks that epochs up to this one will never come again."""
        for name, writer in self._opened.items() if epoch >= 0 else ():
            self._attempt(name, partial(writer.committed, epoch))

    def _commit(self, sink: str) -> str | None:
        """Return the mark of the last epoch's rows for a sink; None if there are none to publish."""
        waiting = self._waiting(sink)
        return commit_of([Path(d.file).name for d in waiting]) if waiting else None

    def _waiting(self, sink: str) -> Sequence[Delivery]:
        return [d for d in self._storage.manifest.outbox if d.sink == sink]

    def _find(self, sink: str, path: Path) -> Path:
        root = self._storage.checkpoint.root
        found = self._storage.tiers.fetched(path.relative_to(root).as_posix())
        if found.exists():
            return found
        self._storage.check()  # a run that took over may have published and then removed it
        raise LostError(
            str(root),
            f"has lost rows of epoch {self._storage.manifest.epoch} for the sink {sink}: {found} is not there",
            "restore that file from a copy; on a cluster all executors and the driver must see the checkpoint's folder",
        )

    def _ask(self, sink: str, action: Callable[[], T]) -> T:
        try:
            return self._attempt(sink, action)
        except SinkError:
            self._storage.check()  # what the sink has may come from a run that took over meanwhile
            raise

    def _attempt(self, sink: str, action: Callable[[], T]) -> T:
        return self._patience.attempt(f"{sink} (sink)", action, of_a_connector)
