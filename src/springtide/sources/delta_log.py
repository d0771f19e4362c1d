"""The log of a Delta table as a stream: which files each version adds, and what else it does. Nothing here reads a file of the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import polars as pl

from springtide.query.errors import SpringtideError

_UNDERSTOOD = {
    "timestampNtz",
    "deletionVectors",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "inCommitTimestamp",
    "variantType",
}
"""What a table may require of its readers; files with deletion vectors are refused one by one, and a variant is a struct of its two parts."""


class UnreadableVersion(SpringtideError):
    """A version that does more than add rows."""


@dataclass(frozen=True)
class File:
    """A file of a table."""

    path: str
    """Relative to the folder of the table."""
    partition: Mapping[str, str | None]
    rows: int
    """How many rows it has according to the log; 0 if the log does not say."""

    def __hash__(self) -> int:
        """Return a hash of its name, which is unique."""
        return hash(self.path)


@dataclass(frozen=True)
class Version:
    """What a commit did."""

    number: int
    files: tuple[File, ...] = ()
    removed: int = 0
    """Files whose rows it took away."""
    schema: pl.Schema | None = None
    """The columns, if it changed them."""
    id: str | None = None
    unread: tuple[str, ...] = field(default=())
    """What it requires of its readers that Springtide does not support."""


def version_of(number: int, text: str) -> Version:
    """Read a commit.

    >>> version = version_of(
    ...     3, '{"add": {"path": "a%20b.parquet", "partitionValues": {"day": "1"}, "dataChange": true}}'
    ... )
    >>> version.files
    (File(path='a b.parquet', partition={'day': '1'}, rows=0),)
    """
    files, removed, found = [], 0, Version(number)
    schema, table_id, unread = found.schema, found.id, found.unread
    for line in text.splitlines():
        action: dict[str, Any] = json.loads(line) if line.strip() else {}
        if (add := action.get("add")) is not None and add.get("dataChange", True):
            files.append(_file(number, add))
        elif (remove := action.get("remove")) is not None:
            removed += bool(remove.get("dataChange", True))
        elif (meta := action.get("metaData")) is not None:
            schema, table_id = columns_of(meta["schemaString"]), meta["id"]
            unread = (*unread, *unreadable((), meta.get("configuration") or {}))
        elif (protocol := action.get("protocol")) is not None:
            unread = (*unread, *unreadable(protocol.get("readerFeatures") or (), {}))
    return Version(number, tuple(files), removed, schema, table_id, unread)


def _file(number: int, add: Mapping[str, Any]) -> File:
    if add.get("deletionVector") is not None:
        raise UnreadableVersion(f"version {number} has rows deleted by a deletion vector, which Springtide cannot read")
    if "://" in add["path"] or add["path"].startswith("/"):
        raise UnreadableVersion(
            f"version {number} has files of another table (a shallow clone), which Springtide cannot read"
        )
    rows = json.loads(add.get("stats") or "{}").get("numRecords") or 0
    return File(unquote(add["path"]), add.get("partitionValues") or {}, rows)


def whole(files: pl.DataFrame) -> tuple[File, ...]:
    """Return the files of a table as Delta's library lists them."""
    apart = files["partition"].struct.fields if "partition" in files.columns else []
    values = [files["partition"].struct.field(name).to_list() for name in apart]
    return tuple(
        File(unquote(path), {name: _text(column[i]) for name, column in zip(apart, values, strict=True)}, rows or 0)
        for i, (path, rows) in enumerate(zip(files["path"], files["num_records"], strict=True))
    )


def _text(value: Any) -> str | None:
    """Write a value that a table is partitioned by as its log does."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def unreadable(features: Iterable[str], configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a table requires of its readers that Springtide does not support."""
    wanted = [name.removesuffix("-preview") for name in features]
    found = [name for name in wanted if name not in _UNDERSTOOD and name != "columnMapping"]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        found.append("columnMapping")
    return tuple(found)


def columns_of(schema: str) -> pl.Schema:
    """Return the columns that a table's schema, as its log writes it, stands for here."""
    import pyarrow as pa
    from deltalake import Schema

    empty = pl.from_arrow(pa.schema(Schema.from_json(schema).to_arrow()).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def difference(columns: pl.Schema, now: pl.Schema) -> str | None:
    """Say how a table's new columns differ for a query that was built with the old ones; None: not in a way that matters.

    >>> difference(pl.Schema({"x": pl.Int64}), pl.Schema({"x": pl.Int64, "y": pl.Int64}))
    "adds the column 'y'"
    """
    for name in now:
        if name not in columns:
            return f"adds the column {name!r}"
    for name, dtype in now.items():
        if columns[name] != dtype:
            return f"makes {name!r} {dtype}, but the query was built with {columns[name]}"
    return None  # columns that it lacks are null: the first versions of a table may have had fewer
