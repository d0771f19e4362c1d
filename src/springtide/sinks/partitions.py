"""Folders that are named after the values of columns, in Hive's style: day=2024-05-01/kind=a."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import polars as pl

from springtide.connectors import ParquetFiles
from springtide.connectors.columns import beyond_calendars
from springtide.query.errors import SinkError

NULL = "__HIVE_DEFAULT_PARTITION__"
"""How Spark, Polars and Arrow write null in the name of a folder."""
LONGEST_NAME = 255
"""Bytes in the name of a folder that file systems allow, and stores that keep objects as files."""
_LONGEST_KEY = 1024
"""Bytes in the name of an object, with all its folders, that stores allow."""
_FILE = 64
"""As many of them are left for the name of a file."""


def folders(columns: Sequence[str], values: Sequence[Any]) -> list[str]:
    """Return the folders for rows with these values, the outermost first. Other values have other folders.

    >>> folders(["day", "town"], ["2024-05-01", None])
    ['day=2024-05-01', 'town=__HIVE_DEFAULT_PARTITION__']
    """
    return [f"{_escaped(name)}={_text(value)}" for name, value in zip(columns, values, strict=True)]


@dataclass(frozen=True)
class PartitionedFiles(ParquetFiles):
    """Parquet files whose rows will be distributed to folders. Values that cannot be names are refused while nothing is committed."""

    sink: str = ""
    """What a user called, for messages."""
    columns: tuple[str, ...] = ()
    above: str | None = None
    """Where in a bucket the folders are; None: they are in a file system."""

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write a Parquet file."""
        for name in self.columns:
            if (what := beyond_calendars(rows[name])) is not None:
                raise self.refused(f"{name!r} has {what}, so no folder can be named after it", f"change {name!r}")
            if isinstance(rows[name].dtype, pl.String | pl.Categorical | pl.Enum):
                self.check(rows[name].cast(pl.String))
        if self.above is not None:
            self._check_keys(rows.select(self.columns), self.above)
        super().write(rows, path)

    def folder(self, name: str, value: Any) -> str:
        """Return the name of the folder for rows with this value."""
        return folders([name], [value])[0]

    def check(self, values: pl.Series) -> None:
        """Refuse texts that cannot be names."""
        may_be_long = values.filter(values.str.len_bytes() > LONGEST_NAME // 3 - 3 * len(values.name.encode()))
        for value in may_be_long.unique():
            folder = self.folder(values.name, value)
            if len(folder.encode()) > LONGEST_NAME:
                raise self.refused(
                    f"a folder would be called {folder[:40]}…, with {len(folder.encode())} bytes; file systems, and some stores, allow {LONGEST_NAME}",
                    f"shorten {values.name!r}",
                )

    def _check_keys(self, values: pl.DataFrame, above: str) -> None:
        room = _LONGEST_KEY - _FILE - len(above.encode())
        if values.width * (LONGEST_NAME + 1) <= room:
            return
        for key in values.unique().iter_rows():
            made = "/".join(map(self.folder, self.columns, key))
            if len(made.encode()) > room:
                raise self.refused(
                    f"files would be in {made[:40]}…, a name with {len(made.encode())} bytes, but stores have room for {max(0, room)} below {above}",
                    f"shorten {' or '.join(map(repr, self.columns))}",
                )

    def refused(self, problem: str, hint: str) -> SinkError:
        """Return the error that says which value is wrong."""
        return SinkError(f"({self.sink})", problem, f"{hint} before this sink, or partition by another column")


def key_of(address: str) -> str:
    """Return where in its bucket an address points.

    >>> key_of("s3://bucket/a%20b/c/?region=r")
    'a b/c'
    """
    return unquote(urlsplit(address).path).strip("/")


def _text(value: Any) -> str:
    if value is None:
        return NULL
    text = _escaped(str(value).lower() if isinstance(value, bool) else str(value))
    return text if text != NULL else f"%5F{NULL[1:]}"  # a text that is this word is not null


def _escaped(text: str) -> str:
    """Escape what has a meaning in names of folders. Letters beyond ASCII stay: Spark would read the bytes of an escape as a letter each.

    >>> _escaped("Århus 50%/a=b")
    'Århus 50%25%2Fa%3Db'
    """
    return "".join(c if c == " " or not c.isascii() else quote(c, safe="") for c in text)
