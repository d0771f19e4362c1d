"""A folder of an object store that a run writes files to, each row exactly once. A store has no rename; it has a conditional create.

    record   the epoch and the names of its files, in the ledger: from now on it counts as published, and no other run can
    show     each file under its name, one write each: whole or not there

After a crash, files of the newest record that are missing are written again from the outbox, under the same names. So a reader of everything that is
there sees no row twice and none that is not committed. Readers may remove files that a record older than the newest names: these never come again.

Files that are held back, to be put together later, are written under names that nobody reads (`_springtide/held/`), and then recorded:

    hold     the epoch's files, then the record that has them
    roll     the record that names the files made from them; show those; remove what they were made from
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from springtide.connectors import (
    AwayError,
    CheckpointError,
    LostError,
    Owner,
    Publication,
    Store,
    Writer,
    commit_of,
    failpoint,
    refusal,
)
from springtide.connectors.ledger import Advice
from springtide.query.errors import SinkError
from springtide.sinks.records import FOLDER, Record, Records
from springtide.sinks.rolling import Layout, write_rolled

HELD = f"{FOLDER}/held"
_ADVICE = Advice(
    elsewhere="give this sink another folder",
    anew=f"to start over, remove everything in it, including the folder {FOLDER}",
    back=f"remove the files after part-{{epoch:09d}}-… and the folder {FOLDER}",
)


def admit(store: Store, owner: Owner) -> Records:
    """Refuse a place that cannot be written to, or whose rows do not belong with those of the run; return its ledger."""
    records = Records(store, owner.step)
    try:
        found = records.look()
        why = refusal(found if found is not None and found.is_told(owner) else None, owner, _ADVICE)
        if found is None and (strangers := [f for f in store.list() if not f.startswith((".", "_"))]):
            named = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
            why = f"has files that are not from this run ({named})", "give this sink an empty or a new folder"
    except AwayError:
        raise
    except CheckpointError as error:
        raise SinkError(owner.step, f"{error.path} {error.problem}", error.hint) from None
    if why is not None:
        raise SinkError(owner.step, f"the folder {store.url} {why[0]}", why[1])
    return records


def check(store: Store, owner: Owner) -> None:
    """Refuse what `admit` refuses, and a place that cannot be written to."""
    admit(store, owner)
    try:
        store.check_writable()
    except AwayError:
        raise
    except CheckpointError as error:
        raise SinkError(owner.step, f"{error.path} {error.problem}", error.hint) from None


class Bucket(Writer):
    """A folder of a store that a run has opened."""

    def __init__(self, store: Store, owner: Owner, layout: Layout) -> None:
        """Claim the folder for a run, and finish what the last one left."""
        self._store, self._owner, self._layout = store, owner, layout
        self._shown: set[str] = set()
        """Files of the newest record that are there."""
        while True:
            self._records = admit(store, owner)
            found = self._records.newest
            left = store.list(HELD) if layout.holds or (found is not None and (found.held or found.made_of)) else []
            if self._records.claim(owner):
                break
        self._finish()
        held = {*self._record.held, *self._record.made_of}
        store.delete(*(path for path in left if path not in held))  # from an epoch that was never recorded
        if self._record.held and not layout.holds:
            self._roll()

    @property
    def _record(self) -> Record:
        return self._records.current

    def has(self, epoch: int, commit: str) -> bool:
        """Look it up in the newest record."""
        return (self._record.epoch, self._record.commit) == (epoch, commit)

    def publish(self, publication: Publication) -> None:
        """Put an epoch's files into the folder; doing so again changes nothing."""
        if not publication.outbox:
            self._roll_if_due()
            return
        record = self._record
        is_new = (record.epoch, record.commit) != (publication.epoch, publication.commit)
        if is_new and self._layout.waits:
            self._hold(publication)
        elif is_new or (record.files and not record.made_of):
            with tempfile.TemporaryDirectory(prefix="springtide-") as scratch:
                files = self._named(publication, Path(scratch))
                if is_new:
                    after = replace(record, epoch=publication.epoch, commit=publication.commit)
                    self._record_shown(after, tuple(files))
                self._check_names(files)
                self._show(files)
        self._roll_if_due()

    def close(self) -> None:
        """Show what is held back, and record that all files are there. A run that has published nothing leaves the place free."""
        if self._records.is_taken():  # another run will finish what is there
            return
        if self._record.held:
            self._roll()
        if self._record.epoch < 0:
            self._records.add(replace(self._record, free=True))
        elif self._record.files and self._shown.issuperset(self._record.files):
            self._record_shown(self._record, ())

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _named(self, publication: Publication, scratch: Path) -> Mapping[str, Path]:
        """Return the files of an epoch by the names that readers see. The same epoch has the same names whenever it comes."""
        mark = publication.commit[:8]
        if self._layout.partition_by:
            return self._together(publication.files, scratch, publication.epoch, mark)
        return {file_name(publication.epoch, n, mark): file for n, file in enumerate(publication.files)}

    def _together(self, files: Sequence[Path], scratch: Path, last: int, mark: str) -> Mapping[str, Path]:
        staging = scratch / "rolled"
        write_rolled(files, staging, self._layout.partition_by, last)
        made = sorted(staging.rglob("*.rolled"))
        numbers = [int(f.stem.rpartition("-")[2]) for f in made]
        names = [f.with_name(file_name(last, n, mark)) for f, n in zip(made, numbers, strict=True)]
        return {str(name.relative_to(staging)): f for name, f in zip(names, made, strict=True)}

    def _check_names(self, files: Mapping[str, Path]) -> None:
        """Refuse to finish an epoch differently from how it was begun: some of its files may already be there."""
        if set(files) != set(self._record.files):
            raise SinkError(
                self._owner.step,
                f"epoch {self._record.epoch} may have been written only in part, and its files had other names than this run would give them",
                "start the query once with the partition_by that it had before, then change it",
            )

    def _record_shown(self, record: Record, files: tuple[str, ...]) -> None:
        self._records.add(replace(record, files=files, made_of=()))
        self._shown = set()

    def _show(self, files: Mapping[str, Path]) -> None:
        """Write the files of the newest record that are not there."""
        again = self._records.number in self._record.claims  # another run began it
        for name, path in files.items():
            if name not in self._shown and not (again and self._store.exists(name)):
                self._store.put(path, name)
            self._shown.add(name)
            failpoint("parquet: revealed")

    # ── files that are held back ──────────────────────────────────────────────────────────────────────────────────

    def _hold(self, publication: Publication) -> None:
        names = []
        for number, file in enumerate(
            publication.files
        ):  # no two attempts use the same names: files of an earlier one may still be removed
            names.append(f"{HELD}/{publication.epoch:09d}-{number:04d}-{secrets.token_hex(4)}.held")
            self._store.put(file, names[-1])
        record = self._record
        size = sum(file.stat().st_size for file in publication.files)
        self._records.add(
            replace(
                record,
                epoch=publication.epoch,
                commit=publication.commit,
                files=(),
                made_of=(),
                held=(*record.held, *names),
                held_bytes=record.held_bytes + size,
                since=record.since if record.held else self._layout.clock(),
            )
        )

    def _roll_if_due(self) -> None:
        if self._record.held and self._layout.due(self._record.held_bytes, self._record.since):
            self._roll()

    def _roll(self) -> None:
        """Put what is held back together, record that, and let readers see it."""
        record = self._record
        with tempfile.TemporaryDirectory(prefix="springtide-") as scratch:
            try:
                files = self._made_of(record.held, Path(scratch))
            except FileNotFoundError as error:
                self._records.check()
                hint = f"restore the file from a copy; nothing in {HELD} may be removed by hand"
                raise LostError(self._store.url, f"has lost rows that were held back: {error}", hint) from None
            failpoint("parquet: put together")
            self._records.add(replace(record, files=tuple(files), made_of=record.held, held=(), held_bytes=0))
            self._shown = set()
            failpoint("parquet: recorded")
            self._show(files)
        self._remove()

    def _made_of(self, held: Sequence[str], scratch: Path) -> Mapping[str, Path]:
        here = [scratch / Path(name).name for name in held]
        for name, path in zip(held, here, strict=True):
            self._store.fetch(name, path)
        last = max(int(path.name.partition("-")[0]) for path in here)
        return self._together(here, scratch, last, commit_of([*held])[:8])

    def _finish(self) -> None:
        """Show what was put together and recorded. What it was made from is removed only afterwards: if some of that is gone, everything was shown."""
        made_of = self._record.made_of
        if not made_of:
            return
        if all(self._store.exists(name) for name in made_of):
            with tempfile.TemporaryDirectory(prefix="springtide-") as scratch:
                self._show(self._made_of(made_of, Path(scratch)))
        self._remove()

    def _remove(self) -> None:
        self._store.delete(*self._record.made_of)
        failpoint("parquet: removed")


def file_name(epoch: int, number: int, mark: str) -> str:
    """Return the name of a file that readers see.

    >>> file_name(7, 0, "0a1b2c3d")
    'part-000000007-0000-0a1b2c3d.parquet'
    """
    return f"part-{epoch:09d}-{number:04d}-{mark}.parquet"
