"""The ledger of a folder: whose it is, and which epoch was published last. It is the name of one empty file in the folder:

    .springtide=QUERY=SINK=CHECKPOINT=GENERATION=EPOCH=COMMIT[=ROLLED[=STAGED]]

A name, because renaming is one step that fails if somebody else was first. An empty file, because readers ignore it: Spark, DuckDB and
Arrow because of its first character, Polars because of its size.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from springtide import connectors
from springtide.connectors import Entry, Owner
from springtide.query.errors import SinkError
from springtide.query.ids import EpochNumber, Generation

PREFIX = ".springtide="
_LONGEST = 60
"""Bytes of a name of a query or a sink that go into a file's name."""
_FILE = re.compile(r"part-(\d{9,})-(\d{4,})\.parquet")
_HELD = re.compile(r"\.part-(\d{9,})-(\d{4,})\.held")
_ROLLING = re.compile(r"\.rolling-(\d{9,}\.[0-9a-f]{8})")
_STAGED = re.compile(
    r"\.part-(\d{9,})-(\d{4,})-([0-9a-f]{16})(?:-([0-9a-f]{8}))?\.(?:staged|(?:[0-9a-f]{8}\.)?partial)"
)
PARTIAL = ".partial"
"""How the name of a staged file ends while it is being copied."""
_ADVICE = connectors.Advice(
    elsewhere="give this sink another folder",
    anew=f"to start over, remove the folder or empty it, including the file {PREFIX}…",
    back=f"remove the files after part-{{epoch:09d}}-… and the file {PREFIX}…",
)


@dataclass(frozen=True)
class FolderEntry(Entry):
    """What the ledger of a folder says."""

    rolled: str = ""
    """Up to which epoch files that were held back have been put together, and a mark: EPOCH.MARK."""
    staged: str = ""
    """Which run staged the files of the epoch: another one that was slow may have staged files of its own, which must never be seen."""

    @staticmethod
    def begun(owner: Owner, before: FolderEntry | None) -> FolderEntry:
        """Return the entry of a run that claims a folder: what is there stays."""
        own = short(owner)
        entry = FolderEntry(own.query, own.name, own.lineage.id, own.generation, *own.last)
        if before is None:
            return entry
        return replace(entry, epoch=before.epoch, commit=before.commit, rolled=before.rolled, staged=before.staged)

    def __str__(self) -> str:
        """Say whose it is."""
        return super().__str__()


def named(entry: FolderEntry) -> str:
    """Return the name of the file that stands for it."""
    parts = [entry.query, entry.sink, entry.checkpoint, str(entry.generation), str(entry.epoch), entry.commit]
    more = [entry.rolled, entry.staged] if entry.staged else [entry.rolled] if entry.rolled else []
    return PREFIX + "=".join([*parts, *more])


def read_entry(name: str) -> FolderEntry | None:
    """Read an entry from the name of a file; None: it is not a ledger."""
    parts = name.removeprefix(PREFIX).split("=")
    try:
        query, sink, checkpoint, generation, epoch, commit, *more = parts
        run, last = Generation(int(generation)), EpochNumber(int(epoch))
        return FolderEntry(query, sink, checkpoint, run, last, commit, *more[:2])
    except ValueError:
        return None


def short(owner: Owner) -> Owner:
    """Return the owner with names that fit into a file's name."""
    return replace(owner, query=_short(owner.query), name=_short(owner.name))


def file_name(epoch: int, number: int) -> str:
    """Return the name of a file that readers see."""
    return f"part-{epoch:09d}-{number:04d}.parquet"


def held_name(epoch: int, number: int) -> str:
    """Return the name of a file that was published and is held back."""
    return f".part-{epoch:09d}-{number:04d}.held"


def staged_name(epoch: int, number: int, commit: str, staged: str = "") -> str:
    """Return the name of a file that is about to be revealed. It does not look like a Parquet file, so nobody reads it."""
    return f".part-{epoch:09d}-{number:04d}-{commit}{'-' * bool(staged)}{staged}.staged"


@dataclass(frozen=True)
class Found:
    """What is in a folder."""

    entries: tuple[FolderEntry, ...] = ()
    files: dict[str, int] = field(default_factory=dict)
    """Name → epoch of the files that have the names of ours."""
    staged: dict[str, tuple[int, int, str, str]] = field(default_factory=dict)
    """Name → epoch, number, commit, and which run staged it, of the files that were about to be seen."""
    held: dict[str, int] = field(default_factory=dict)
    """Name → epoch of the files that were published and are held back until there are enough of them."""
    rolling: tuple[str, ...] = ()
    """Folders with what was put together from such files, each EPOCH.MARK."""
    strangers: tuple[str, ...] = ()
    """Other names that readers see."""


def look(folder: Path) -> Found:
    """List what is in a folder; one that does not exist is empty."""
    entries, files, staged, held, rolling, strangers = [], {}, {}, {}, [], []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return Found()
    for name in names:
        if name.startswith(PREFIX):
            if (entry := read_entry(name)) is not None:
                entries.append(entry)
        elif match := _HELD.fullmatch(name):
            held[name] = int(match[1])
        elif match := _ROLLING.fullmatch(name):
            rolling.append(match[1])
        elif match := _STAGED.fullmatch(name):
            staged[name] = int(match[1]), int(match[2]), match[3], match[4] or ""
        elif match := _FILE.fullmatch(name):
            files[name] = int(match[1])
        elif not name.startswith((".", "_")):
            strangers.append(name)
    return Found(tuple(entries), files, staged, held, tuple(rolling), tuple(strangers))


def refusal(found: Found, owner: Owner) -> tuple[str, str] | None:
    """Return why a run must not write to a folder, and what to do; None: it may."""
    if len(found.entries) > 1:
        return (
            f"is claimed by {' and by '.join(map(str, found.entries))}",
            f"remove the file {PREFIX}… of the one that no longer exists, or {_ADVICE.elsewhere}",
        )
    if not found.entries:
        return _unclaimed(found, owner)
    return connectors.refusal(found.entries[0], short(owner), _ADVICE)


def _unclaimed(found: Found, owner: Owner) -> tuple[str, str] | None:
    """Judge a folder without a ledger: an older version wrote to it, or somebody removed it."""
    ours = found.files | found.held
    rolling = [f".rolling-{mark}" for mark in found.rolling]
    unknown = [*found.strangers, *rolling, *(name for name, epoch in ours.items() if epoch > owner.epoch)]
    if not unknown:
        return None
    named = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
    return f"has files that are not from this run ({named})", "give this sink an empty or a new folder"


def refuse(folder: Path, found: Found, owner: Owner) -> None:
    """Raise the refusal, if there is one."""
    if (why := refusal(found, owner)) is not None:
        raise SinkError(owner.step, f"the folder {folder} {why[0]}", why[1])


def claim(folder: Path, found: Sequence[FolderEntry], wanted: FolderEntry, step: str) -> None:
    """Replace the entry that was found, in one step; if somebody else was faster, that is an error."""
    path = folder / named(wanted)
    if found:
        os.rename(folder / named(found[0]), path)
        return
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    others = [entry for entry in look(folder).entries if entry != wanted]
    if others:
        path.unlink(missing_ok=True)
        problem = f"the folder {folder} was claimed at the same moment by {' and by '.join(map(str, others))}"
        raise SinkError(step, problem, "give one of them another folder")


def _short(name: str) -> str:
    """Shorten a name so that it fits into a file's name; what is cut off still counts, as a digest."""
    if len(name.encode()) <= _LONGEST:
        return name
    cut = name.encode()[: _LONGEST - 9].decode(errors="ignore")
    return f"{cut}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
