"""Parquet files, read past the JVM."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from springtide.query.connectors import Rows
from springtide.query.errors import QueryError
from springtide.sources.memory import ONE_STREAM


@dataclass(frozen=True, eq=False)
class Parquet:
    """The Parquet files of a folder or pattern: one physical stream, files in the order of their names."""

    path: str
    declared: pl.Schema | None
    positions: bool = True

    def files(self) -> list[str]:
        """List the files that are there now, in order."""
        path = Path(self.path)
        if path.is_dir():
            return sorted(str(f) for f in path.glob("*.parquet"))
        return sorted(glob.glob(self.path))

    def schema(self) -> pl.Schema:
        """Names and types of the columns: as declared, or those of the first file."""
        if self.declared is not None:
            return self.declared
        files = self.files()
        if not files:
            raise QueryError(
                "(parquet)",
                f"there is no Parquet file in {self.path}",
                "check the path, or give schema={'ts': st.TIME, ...} to start before files come",
            )
        return pl.Schema(pl.read_parquet_schema(files[0]))

    def describe(self) -> str:
        """Say which files."""
        return f"parquet {self.path}"

    def read_all(self) -> Mapping[str, Rows]:
        """Read all files that are there now."""
        frames = [pl.read_parquet(f) for f in self.files()]
        return {ONE_STREAM: pl.concat(frames) if frames else pl.DataFrame(schema=self.schema())}


def parquet(path: str | Path, *, schema: Mapping[str, Any] | None = None) -> Parquet:
    """Read the Parquet files of a folder (or a file, or a pattern), in the order of their names.

    >>> st.parquet("cdr/", schema={"src": pl.String, "ts": st.TIME}).describe()
    'parquet cdr/'
    """
    return Parquet(str(path), None if schema is None else pl.Schema(schema))
