"""Folders that a run makes for itself where others have files too: in shared memory, or in a folder that a user names.

    PARENT/springtide-1000-9f86d081884c-d2a84f4b8b650937/       user, checkpoint, and what nobody can guess
        .springtide                                             says who made it
        state/…                                                 segments that are not durable yet

Nobody else may look into such a folder or write to it, and nothing but such a folder is ever removed: what else is in the parent is
somebody's own. The checkpoint is in the name, so that a start finds what runs of it that were killed have left.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from springtide.state import names
from springtide.state.errors import CheckpointError
from springtide.state.parsing import content, parsed

MARKER = ".springtide"
_SHARED_MEMORY = Path("/dev/shm")
_TOLD = "Made by a run of a Springtide query, for state that is not durable yet. The run removes it.\n"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_OURS = re.compile(r"springtide-\d+-[0-9a-f]{12}-[0-9a-f]{16}")


def shared_memory() -> Path:
    """Return this machine's shared memory; where it has none, its folder for temporary files."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def new(parent: Path, root: Path) -> Path:
    """Return a folder for a run on the checkpoint `root`; nothing is made yet."""
    return parent / f"{_beginning(root)}{secrets.token_hex(8)}"


def make(folder: Path) -> None:
    """Make the folder if it is not there; one that somebody else has put there is refused."""
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        folder.parent.mkdir(parents=True, exist_ok=True)
        make(folder)
        return
    except FileExistsError:
        if (problem := _foreign(folder)) is not None:
            hint = "see who put it there and remove it, or name another folder by st.Durability(shared_memory=…)"
            raise CheckpointError(str(folder), problem, hint) from None
        return
    with suppress(FileNotFoundError):  # somebody has removed it this very moment
        (folder / MARKER).write_text(_TOLD)


def remove(folder: Path) -> None:
    """Remove the folder of this run, with all that is in it. What no run has made stays."""
    if _is_made(folder):
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path, root: Path, keep: str | None) -> None:
    """Remove what runs on this checkpoint that were killed have left in a parent, but for the folder `keep`."""
    with suppress(OSError):
        for folder in parent.glob(f"{_beginning(root)}*"):
            if str(folder) != keep:
                remove(folder)


def left(folder: object, root: Path) -> str | None:
    """Take a folder that a manifest names: only if it is there, and was made by a run of ours, or of whoever owns the checkpoint."""
    if not isinstance(folder, str) or "\0" in folder or not os.path.isabs(folder):
        return None
    path = Path(folder)
    with suppress(OSError):
        if _is_made(path, root) or (path == former(root) and _foreign(path, root) is None):
            return folder
    return None


def remove_left(folder: str, root: Path) -> None:
    """Remove a folder that a manifest names and `left` took; of a checkpoint that this one is a copy of it is not ours to remove."""
    path = Path(folder)
    if path.name.startswith(_beginning(root)):
        remove(path)
    elif path == former(root):
        with suppress(OSError):
            if _foreign(path) is None:
                shutil.rmtree(path, ignore_errors=True)


def former(root: Path) -> Path:
    """Return the folder in shared memory that earlier versions gave to a checkpoint; it had no mark."""
    return shared_memory() / f"springtide-{os.getuid()}-{zlib.crc32(str(root).encode()):08x}-{root.name}"


def _beginning(root: Path) -> str:
    """Return what the names of all folders of a checkpoint begin with: another checkpoint at the same path has another."""
    try:
        created = parsed(content(root / names.MARKER))["created"]
    except (OSError, ValueError, KeyError, TypeError):
        created = None
    digest = hashlib.blake2b(f"{root} {created}".encode(errors="surrogateescape"), digest_size=6).hexdigest()
    return f"springtide-{os.getuid()}-{digest}-"


def _is_made(folder: Path, root: Path | None = None) -> bool:
    try:
        return (
            _OURS.fullmatch(folder.name) is not None
            and _foreign(folder, root) is None
            and stat.S_ISREG(os.lstat(folder / MARKER).st_mode)
        )
    except OSError:
        return False


def _foreign(folder: Path, root: Path | None = None) -> str | None:
    """Return why a folder is not ours to use, or, with `root`, not of those who own that checkpoint; None when it is."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid not in {os.getuid(), *([root.stat().st_uid] if root is not None else [])}:
        return f"belongs to another user ({found.st_uid})"
    return "can be written by other users" if found.st_mode & _OTHERS else None
