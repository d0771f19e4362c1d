"""Folders that are named after the values of columns, in Hive's style: day=2024-05-01/kind=a."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from springtide.connectors import ParquetFiles
from springtide.query.errors import SinkError

NULL = "__HIVE_DEFAULT_PARTITION__"
"""How Spark, Polars and Arrow write null in the name of a folder."""
LONGEST_NAME = 255
"""Bytes that file systems allow in the name of a folder."""


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

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write a Parquet file."""
        for name in self.columns:
            if isinstance(rows[name].dtype, pl.String | pl.Categorical | pl.Enum):
                self._check(rows[name].cast(pl.String))
        super().write(rows, path)

    def _check(self, values: pl.Series) -> None:
        may_be_long = values.filter(values.str.len_bytes() > LONGEST_NAME // 3 - 3 * len(values.name.encode()))
        for value in may_be_long.unique():
            (name,) = folders([values.name], [value])
            if len(name.encode()) > LONGEST_NAME:
                raise SinkError(
                    f"({self.sink})",
                    f"a folder would be called {name[:40]}…, with {len(name.encode())} bytes; file systems allow {LONGEST_NAME}",
                    f"shorten {values.name!r} before this sink, or partition by another column",
                )


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
