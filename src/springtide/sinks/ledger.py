"""The ledger of a folder: whose it is, and which epoch was published last. It is the name of one empty file in the folder:

    .springtide=QUERY=SINK=CHECKPOINT=GENERATION=EPOCH=COMMIT

A name, because to rename it is one step that fails if somebody else took it first. An empty file, because readers pass it over: Spark, DuckDB and
Arrow for its first character, Polars for its size.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from springtide.query.errors import SinkError
from springtide.sinks.publication import Owner, Publication

PREFIX = ".springtide="
_LONGEST = 60
"""Bytes of a name of a query or a sink that go into a file's name."""
_FILE = re.compile(r"part-(\d{9,})-(\d{4,})\.parquet")
_STAGED = re.compile(r"\.part-(\d{9,})-(\d{4,})-([0-9a-f]{16})\.(?:staged|partial)")
PARTIAL = ".partial"
"""How the name of a staged file ends while it is being copied."""


@dataclass(frozen=True)
class Entry:
    """What a ledger says."""

    query: str
    sink: str
    checkpoint: str
    generation: int
    epoch: int = -1
    """The last epoch with rows for this sink; -1: none yet."""
    commit: str = ""
    """Which commit of that epoch."""

    @staticmethod
    def of(owner: Owner) -> Entry:
        """Give the entry of a run that has published nothing yet."""
        return Entry(_short(owner.query), _short(owner.sink), owner.lineage.id, owner.generation)

    @staticmethod
    def read(name: str) -> Entry | None:
        """Read it from the name of a file; None: it is no ledger."""
        parts = name.removeprefix(PREFIX).split("=")
        try:
            query, sink, checkpoint, generation, epoch, commit = parts
            return Entry(query, sink, checkpoint, int(generation), int(epoch), commit)
        except ValueError:
            return None

    @property
    def name(self) -> str:
        """The name of the file."""
        return PREFIX + "=".join(
            (self.query, self.sink, self.checkpoint, str(self.generation), str(self.epoch), self.commit)
        )

    def after(self, publication: Publication) -> Entry:
        """Give the entry once an epoch is published."""
        return replace(self, epoch=publication.epoch, commit=publication.commit)

    def __str__(self) -> str:
        """Say whose it is."""
        return f"the sink {self.sink} of the query {self.query!r} (checkpoint {self.checkpoint[:8]}, published up to epoch {self.epoch})"


def file_name(epoch: int, number: int) -> str:
    """Name a file that readers see."""
    return f"part-{epoch:09d}-{number:04d}.parquet"


def staged_name(epoch: int, number: int, commit: str) -> str:
    """Name a file that is about to be seen. Not a Parquet file by its name: nobody is to read it."""
    return f".part-{epoch:09d}-{number:04d}-{commit}.staged"


@dataclass(frozen=True)
class Found:
    """What is in a folder."""

    entries: tuple[Entry, ...] = ()
    files: dict[str, int] = field(default_factory=dict)
    """Name → epoch of the files that have the names of ours."""
    staged: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """Name → epoch, number, commit of the files that were about to be seen."""
    strangers: tuple[str, ...] = ()
    """Other names that readers see."""


def look(folder: Path) -> Found:
    """Look what is in a folder; one that is not there is empty."""
    entries, files, staged, strangers = [], {}, {}, []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return Found()
    for name in names:
        if name.startswith(PREFIX):
            if (entry := Entry.read(name)) is not None:
                entries.append(entry)
        elif match := _STAGED.fullmatch(name):
            staged[name] = int(match[1]), int(match[2]), match[3]
        elif match := _FILE.fullmatch(name):
            files[name] = int(match[1])
        elif not name.startswith((".", "_")):
            strangers.append(name)
    return Found(tuple(entries), files, staged, tuple(strangers))


def refusal(found: Found, owner: Owner) -> tuple[str, str] | None:
    """Say why a run must not write to a folder, and what to do; None: it may."""
    elsewhere = "give this sink another folder"
    if len(found.entries) > 1:
        return (
            f"is claimed by {' and by '.join(map(str, found.entries))}",
            f"remove the file {PREFIX}… of the one that is no more, or {elsewhere}",
        )
    if not found.entries:
        return _unclaimed(found, owner)
    (entry,) = found.entries
    begin_anew = f"to begin anew, remove the folder or empty it, the file {PREFIX}… too"
    if entry.checkpoint == owner.lineage.id:
        known, whose = owner.epoch, f"this checkpoint ends with epoch {owner.epoch}"
    else:
        shared = owner.lineage.shared_with(entry.checkpoint)
        if shared is None:
            return f"belongs to {entry}", f"{elsewhere}, or go on with that checkpoint; {begin_anew}"
        known, whose = shared, f"this checkpoint was made of it at epoch {shared}"
    if entry.sink != _short(owner.sink):
        return f"belongs to {entry}", f"call this sink {entry.sink} again, or {elsewhere}"
    if entry.epoch > known:
        return (
            f"has rows of {entry}, and {whose}: later rows would come twice",
            f"{elsewhere}, or take back what came later: remove the files after part-{known:09d}-… and the file {PREFIX}…",
        )
    if entry.checkpoint == owner.lineage.id and entry.generation > owner.generation:
        return (
            f"was taken over by a newer run of {entry}",
            "this run is stale: start it again if it is the one you want",
        )
    if entry.epoch == owner.epoch and owner.commit not in (None, entry.commit):
        return (
            f"has another epoch {entry.epoch} of {entry}: two runs went on from the same checkpoint",
            f"{elsewhere}, or go on with the checkpoint of the other run",
        )
    return None


def _unclaimed(found: Found, owner: Owner) -> tuple[str, str] | None:
    """Judge a folder without a ledger: an older version wrote to it, or somebody removed it."""
    unknown = [*found.strangers, *(name for name, epoch in found.files.items() if epoch > owner.epoch)]
    if not unknown:
        return None
    named = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
    return f"has files that are not of this run ({named})", "give this sink an empty or a new folder"


def refuse(folder: Path, found: Found, owner: Owner) -> None:
    """Raise the refusal, if there is one."""
    if (why := refusal(found, owner)) is not None:
        raise SinkError(owner.step, f"the folder {folder} {why[0]}", why[1])


def claim(folder: Path, found: Sequence[Entry], wanted: Entry, step: str) -> None:
    """Write the entry in place of the one that was found, in one step; if somebody else was faster it is an error."""
    path = folder / wanted.name
    if found:
        os.rename(folder / found[0].name, path)
        return
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    others = [entry for entry in look(folder).entries if entry != wanted]
    if others:
        path.unlink(missing_ok=True)
        problem = f"the folder {folder} was claimed at the same moment by {' and by '.join(map(str, others))}"
        raise SinkError(step, problem, "give one of them another folder")


def _short(name: str) -> str:
    """Cut a name so that it fits into that of a file; what is cut off counts all the same."""
    if len(name.encode()) <= _LONGEST:
        return name
    cut = name.encode()[: _LONGEST - 9].decode(errors="ignore")
    return f"{cut}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
