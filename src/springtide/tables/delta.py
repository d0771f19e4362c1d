"""Where a Delta table is, and with which secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.connectors import Secret
from springtide.query.errors import QueryError, shown
from springtide.query.places import local, without_secrets


@dataclass(frozen=True)
class DeltaPlace:
    """A folder, or an address in an object store with the options that it needs."""

    path: str
    options: tuple[tuple[str, Secret], ...] = field(default=(), repr=False)

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one."""
        return local(self.path)

    @property
    def revealed(self) -> dict[str, str]:
        """The options, with the secrets revealed."""
        return {name: secret.reveal() for name, secret in self.options}

    def table(self, version: int | None = None) -> Any:
        """Return the table as it is now, or as it was at a version; None if there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.uri, version=version, storage_options=self.revealed)
        except TableNotFoundError:
            return None

    def files(self, table: Any) -> Any:
        """Return the files of the table, and of its log, as a file system of Arrow."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler.from_table(table._table, self.revealed))

    @property
    def uri(self) -> str:
        """The address as Delta's library wants it."""
        return self.path if self.folder is None else str(self.folder)

    def __str__(self) -> str:
        """Say where it is."""
        return self.path if self.folder is not None else without_secrets(self.path)


def delta_place(step: str, path: str | Path, options: Mapping[str, str | Secret] | None) -> DeltaPlace:
    """Read what a user gave."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise QueryError(f"({step})", "deltalake is not installed", "pip install 'springtide[delta]'") from error
    if not isinstance(path, str | Path) or not str(path):
        raise QueryError(f"({step})", f"{shown(path)} is not a path", "give the folder or the address of the table")
    folder = local(path)
    if folder is not None and (escape := re.search(r"%[0-9A-Fa-f]{2}", str(folder.absolute()))) is not None:
        problem = f"{shown(str(path))} has {escape[0]} in its path, which Delta's library takes for another character"
        raise QueryError(f"({step})", problem, "give the folder another name")
    kept = {name: value if isinstance(value, Secret) else Secret(str(value)) for name, value in (options or {}).items()}
    return DeltaPlace(str(path), tuple(sorted(kept.items())))
