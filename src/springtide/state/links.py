"""Only files inside a checkpoint are ever removed or moved: links that lead elsewhere are refused before anything is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from springtide.state.errors import CheckpointError
from springtide.state.names import BUFFER, HISTORY, MANIFESTS, OUTBOX, SAVEPOINTS, SPARK, SPARK_RUNS, STATE

_FOLDERS = dict.fromkeys((STATE, BUFFER, OUTBOX, MANIFESTS, SAVEPOINTS, HISTORY), 2) | {SPARK: 5, SPARK_RUNS: 1}
"""Folders in which files are removed, and how deep they are. The control folder is checked with every command."""


def refuse_links(root: Path) -> None:
    """Refuse a checkpoint in which a file or folder is a link. The checkpoint's folder itself may be one."""
    for folder, depth in _FOLDERS.items():
        for link in _links(root / folder, depth):
            raise CheckpointError(
                str(root),
                f"has a link at {link.relative_to(root)}, which leads to {os.readlink(link)}",
                "put the file or folder itself there, or move the whole checkpoint and link to that",
            )


def _links(path: Path, depth: int) -> Iterator[Path]:
    if path.is_symlink():
        yield path
        return
    try:
        with os.scandir(path) as entries:
            found = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        if entry.is_symlink():
            yield Path(entry.path)
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _links(Path(entry.path), depth - 1)
