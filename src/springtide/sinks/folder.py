"""A folder that a run writes files to, each row exactly once, even if a reader takes files away at any moment.

    stage    every file of the epoch under a hidden name in the folder, which no other run uses, durable
    record   the epoch in the ledger, durable: from now on it counts as published
    reveal   each file under the name that readers see, by a rename

After a crash, an epoch that was not recorded is staged again, and the files of a recorded one that are still hidden are revealed: those that are no longer hidden
have been seen. Names that were revealed become durable with the next epoch, or at the end; those that a power cut takes back are hidden again.
"""

from __future__ import annotations

import os
import secrets
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from springtide.connectors import LostError, Owner, Publication, Writer, failpoint, flush, make_folder
from springtide.query.errors import SinkError
from springtide.sinks.ledger import PARTIAL, FolderEntry, claim, file_name, held_name, look, named, refuse, staged_name
from springtide.sinks.rolling import Layout, write_rolled


class Folder(Writer):
    """A folder that a run has opened."""

    def __init__(self, path: Path, owner: Owner, layout: Layout | None = None) -> None:
        """Claim the folder for a run, and finish what the last one left."""
        make_folder(path)
        self._path, self._owner, self._layout = path, owner, layout or Layout()
        self._token = secrets.token_hex(4)
        """What it stages has this in its name: a run that was paused, and stages the same epoch later, must not pass its files off as this one's."""
        found = look(path)
        refuse(path, found, owner)
        self._entry = FolderEntry.begun(owner, found.entries[0] if found.entries else None)
        if not found.entries and found.files:
            last = max(found.files.values())
            owner.note(
                f"{path} has no record of whose it is; its files, up to epoch {last}, are assumed to be from this query"
            )
        claim(path, found.entries, self._entry, owner.step)
        recorded = self._entry.epoch, self._entry.commit, self._entry.staged
        for name, (epoch, number, commit, staged) in found.staged.items():
            if (epoch, commit, staged) == recorded and not name.endswith(PARTIAL):
                self._reveal(path / name, epoch, number)
            else:  # from an epoch that was never recorded: it is still in the outbox, or belongs to another run
                (path / name).unlink(missing_ok=True)
        self._is_durable = False
        self._held = {name: os.stat(path / name).st_size for name in look(path).held}
        self._since = min((os.stat(path / name).st_mtime for name in self._held), default=0.0)
        self._finish()
        for mark in found.rolling:  # never recorded: what it was made from is still held back
            if mark != self._entry.rolled:
                shutil.rmtree(path / f".rolling-{mark}", ignore_errors=True)
        if self._held and not self._layout.holds:
            self._roll()

    def has(self, epoch: int, commit: str) -> bool:
        """Look it up in the ledger, since readers may have taken files away."""
        return (self._entry.epoch, self._entry.commit) == (epoch, commit)

    def publish(self, publication: Publication) -> None:
        """Put an epoch's files into the folder; doing so again changes nothing."""
        if not publication.outbox:
            self._settle()
            self._roll_if_due()
            return
        if not self.has(publication.epoch, publication.commit):
            make_folder(self._path)
            self._stage(publication, self._staged(publication, self._token))
            flush(self._path)
            self._record(replace(self._entry.after(publication), staged=self._token))
            flush(self._path)
        for number, path in enumerate(self._staged(publication, self._entry.staged)):
            self._reveal(path, publication.epoch, number)
        self._is_durable = False
        self._roll_if_due()

    def close(self) -> None:
        """Make what was revealed durable. A run that has published nothing leaves nothing."""
        if self._held and self._is_ours():
            self._roll()
        self._settle()
        if self._entry.epoch < 0 and not look(self._path).files:
            (self._path / named(self._entry)).unlink(missing_ok=True)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _staged(self, publication: Publication, token: str) -> list[Path]:
        epoch, commit = publication.epoch, publication.commit
        return [self._path / staged_name(epoch, number, commit, token) for number in range(len(publication.outbox))]

    def _stage(self, publication: Publication, staged: list[Path]) -> None:
        older = self._owner.older and publication.epoch == self._owner.epoch
        files = self._left_by_an_older_version(publication) if older else dict(enumerate(publication.files))
        for number, file in files.items():
            hidden = staged[number]
            try:
                os.link(file, hidden)
            except FileExistsError:  # staged when this was tried before
                continue
            except OSError:  # another file system, or one without links
                partial = hidden.with_name(f"{hidden.stem}.{uuid.uuid4().hex[:8]}{PARTIAL}")  # another run may be at it
                with _removed_if_it_fails(partial):
                    shutil.copyfile(file, partial)
                    flush(partial)
                    os.replace(partial, hidden)

    def _left_by_an_older_version(self, publication: Publication) -> dict[int, Path]:
        """Return what is still to be published by an older version's epoch: it moved files from the outbox to the folder, and kept no other record."""
        left = {}
        for number, path in enumerate(publication.outbox):
            if not (self._path / file_name(publication.epoch, number)).exists():
                with suppress(LostError):
                    left[number] = publication.find(path)
        return left

    def _record(self, after: FolderEntry) -> None:
        """Record an epoch in the ledger; a run that lost the folder to another is refused."""
        try:
            claim(self._path, [self._entry], after, self._owner.step)
        except FileNotFoundError:
            entries = look(self._path).entries
            if not entries:  # somebody emptied the folder, including the ledger
                self._owner.note(f"the record in {self._path} was removed; it is written again")
                claim(self._path, (), after, self._owner.step)
            elif entries != (after,):  # otherwise it was written, though it seemed to have failed
                raise SinkError(
                    self._owner.step,
                    f"the folder {self._path} was taken over by {' and by '.join(map(str, entries))}",
                    "this run is stale; the rows of its last epoch were not written",
                ) from None
        self._entry = after

    def _is_ours(self) -> bool:
        """Return whether no other run has the folder: what is held back is that one's to show."""
        return look(self._path).entries in ((), (self._entry,))

    def _reveal(self, hidden: Path, epoch: int, number: int) -> None:
        if not hidden.exists():
            return  # it was revealed before, and perhaps taken away since
        holds = self._layout.holds
        target = self._path / (held_name(epoch, number) if holds else file_name(epoch, number))
        size = os.stat(hidden).st_size
        if target.exists():
            raise SinkError(
                self._owner.step,
                f"{target} already exists, and is not from this run",
                "move that file away, and start again",
            )
        try:
            os.rename(hidden, target)
        except FileNotFoundError:  # a newer run was faster
            return
        if holds:
            self._since = self._layout.clock() if not self._held else self._since
            self._held[target.name] = size

    # ── files that are held back (see `rolling`) ──────────────────────────────────────────────────────────────────

    def _roll_if_due(self) -> None:
        if self._held and self._layout.due(sum(self._held.values()), self._since):
            self._roll()

    def _roll(self) -> None:
        """Put what is held back together, record that, and let readers see it."""
        last = max(look(self._path).held.values(), default=-1)
        if last < 0:  # somebody emptied the folder
            self._held = {}
            return
        mark = f"{last:09d}.{uuid.uuid4().hex[:8]}"
        held = [self._path / name for name in sorted(self._held) if (self._path / name).exists()]
        with _removed_if_it_fails(self._path / f".rolling-{mark}") as staging:
            write_rolled(held, staging, self._layout.partition_by, last)
        flush(self._path)
        failpoint("parquet: put together")
        self._record(replace(self._entry, rolled=mark))
        flush(self._path)
        failpoint("parquet: recorded")
        self._finish()

    def _finish(self) -> None:
        """Let readers see what was put together and recorded, and remove what it was made from. Doing so again changes nothing."""
        if not self._entry.rolled:
            return
        staging, last = self._path / f".rolling-{self._entry.rolled}", int(self._entry.rolled.partition(".")[0])
        for file in sorted(staging.rglob("*.rolled")):
            target = self._path / file.relative_to(staging).with_suffix(".parquet")
            make_folder(target.parent)
            with suppress(FileNotFoundError):  # a newer run was faster
                os.rename(file, target)
            flush(target.parent)
            failpoint("parquet: revealed")
        for name in [name for name, epoch in look(self._path).held.items() if epoch <= last]:
            (self._path / name).unlink(missing_ok=True)
            self._held.pop(name, None)
        failpoint("parquet: removed")
        shutil.rmtree(staging, ignore_errors=True)

    def _settle(self) -> None:
        if not self._is_durable and self._path.exists():
            flush(self._path)
            self._is_durable = True


@contextmanager
def _removed_if_it_fails(path: Path) -> Iterator[Path]:
    """Leave nothing of a file or a folder that could not be written: on a full disk every attempt would take more of it."""
    try:
        yield path
    except Exception:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.unlink()
        raise
