"""An Iceberg table. In one commit: a snapshot with the files of an epoch, and in its summary which epoch of which checkpoint that is.

    springtide.query, .sink, .checkpoint, .generation    whose rows these are, and which run wrote them
    springtide.epoch, .commit                            the last epoch with rows

The newest snapshot with such a summary is the entry; snapshots of other writers may follow it. A commit names the snapshot that it comes after, and the
catalog accepts it only if that is still the newest. A run that claims the table makes a snapshot without files, so that any commit of the run before fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from springtide.connectors import (
    Advice,
    Entry,
    LedgerSink,
    Outbox,
    Owner,
    ParquetFiles,
    Publication,
    Secret,
    Target,
    failpoint,
)
from springtide.connectors.columns import beyond_calendars
from springtide.query.errors import SinkError
from springtide.query.ids import EpochNumber, Generation
from springtide.query.types import instance
from springtide.query.usage import usage
from springtide.sinks.lakes.columns import names_to_partition, unfit_for_lakes, unfit_to_partition
from springtide.sinks.lakes.folders import short_folder_of
from springtide.tables.iceberg import IcebergPlace, iceberg_place

_PREFIX = "springtide."
_FIELDS = ("query", "sink", "checkpoint", "generation", "epoch", "commit")
_FILE_SIZE = 128 * 2**20
"""Small files are merged into files of about this size."""
_SMALL = _FILE_SIZE // 4
_MANY = 24
"""How many small files are needed before they are merged."""
_LONGEST = 4096
"""Bytes of a text that Arrow writes into statistics, where PyIceberg looks for the value of a partition."""
_TRIES = 20
"""How often other writers may be faster before the failure is left to the run's patience."""
_NEW_TABLE = {"commit.manifest-merge.enabled": "true", "format-version": "2"}


@dataclass(frozen=True)
class IcebergFiles(ParquetFiles):
    """Parquet files for a table. Values that it cannot hold, or be partitioned by, are refused while nothing is committed."""

    columns: tuple[str, ...] = ()
    """Those that it is partitioned by."""

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write a Parquet file."""
        for column in rows:  # PyIceberg reads the statistics of a file as Python's times
            if (what := beyond_calendars(column)) is not None:
                raise SinkError(
                    "(iceberg_sink)",
                    f"{column.name!r} has {what}, which PyIceberg cannot read",
                    "change it before this sink",
                )
        for name in self.columns:
            if rows[name].dtype == pl.String and (rows[name].str.len_bytes() > _LONGEST).any():
                problem = f"{name!r} has a text of more than {_LONGEST} bytes, by which PyIceberg cannot partition"
                raise SinkError(
                    "(iceberg_sink)", problem, f"shorten {name!r} before this sink, or partition by another column"
                )
        super().write(rows, path)


@dataclass(frozen=True)
class IcebergSink(LedgerSink):
    """An Iceberg table."""

    table: IcebergPlace
    partition_by: tuple[str, ...] = ()

    advice = Advice(
        elsewhere="give this sink another table",
        anew="to start over, drop the table",
        back="roll the table back to the snapshot that had epoch {epoch} last",
    )

    @property
    def outbox(self) -> Outbox:
        """Tasks write Parquet files, which become the table's."""
        return IcebergFiles(columns=self.partition_by)

    def describe(self) -> str:
        """Say which table."""
        return f"Iceberg table {self.table}"

    @property
    def place(self) -> Hashable:
        """Which table it is: no two sinks can share it."""
        return "iceberg", self.table

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what an Iceberg table cannot hold."""
        return unfit_to_partition(schema, self.partition_by) or unfit_for_lakes(schema) or _same_paths(schema)

    def connect(self, owner: Owner) -> Target:
        """Look at the table, and refuse one with other columns."""
        return IcebergTarget(self, owner)


class IcebergTarget(Target):
    """An Iceberg table, as one run sees it."""

    def __init__(self, sink: IcebergSink, owner: Owner) -> None:
        """Check what is there; nothing is made yet."""
        self.sink, self.owner = sink, owner
        self.catalog = sink.table.open_catalog()
        self._arrow = pl.DataFrame(schema=owner.schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        self._small = _MANY  # look at what is there, at first
        self._checked: tuple[Any, ...] = ()
        """The form of the table when its columns were checked."""
        table = sink.table.table(self.catalog)
        if table is not None:
            self._check_columns(table)
            self._check_past(table)

    def _check_columns(self, table: Any) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        there = {field.name: field for field in table.schema().fields}
        for name in self.owner.schema:
            if name not in there:
                raise self.refused(
                    f"has no column {name!r}", f"it has {', '.join(there)}; add the column there, or select others"
                )
        if needed := [f.name for f in there.values() if f.required and f.name not in self.owner.schema]:
            raise self.refused(f"needs a value for {needed[0]!r}", "add that column before this sink")
        kinds = pl.from_arrow(schema_to_pyarrow(table.schema(), include_field_ids=False).empty_table())
        assert isinstance(kinds, pl.DataFrame)
        for name, dtype in self.owner.schema.items():
            wanted = _kept_as(dtype)
            if kinds.schema[name] != wanted:
                raise self.refused(
                    f"has {name!r} as {there[name].field_type}, but rows have {dtype}", "cast it before this sink"
                )
            if there[name].required:
                raise self.refused(f"needs a value for {name!r} in every row", "make that column optional in the table")
        by = tuple(table.schema().find_column_name(f.source_id) or "" for f in table.spec().fields)
        if by != self.sink.partition_by or any(str(f.transform) != "identity" for f in table.spec().fields):
            shown = ", ".join(f"{f.transform}({n})" for f, n in zip(table.spec().fields, by, strict=True)) or "nothing"
            raise self.refused(f"is partitioned by {shown}", "make partition_by say the same")
        self._checked = _form(table)

    def _check_past(self, table: Any) -> None:
        if self.owner.commit is not None and _entry(table) is None and table.current_snapshot() is not None:
            raise self.refused(
                f"has snapshots, but none says whose rows they are, so it is unknown whether those of epoch {self.owner.epoch} are among them",
                "roll it back to a snapshot of this sink, or give this sink another table",
            )

    # ── the ledger ────────────────────────────────────────────────────────────────────────────────────────────────

    def entry(self) -> Entry | None:
        """Look up what the table's snapshots say."""
        table = self.sink.table.table(self.catalog)
        return None if table is None else _entry(table)

    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        """Add a snapshot with the files and the entry, if the newest entry is what it was."""
        from pyiceberg.exceptions import CommitFailedException

        table = self.sink.table.table(self.catalog) or self._create()
        files: list[str] | None = None
        for attempt in range(_TRIES):
            if _entry(table) != before:
                return False
            if _form(table) != self._checked:  # somebody has changed it
                self._check_columns(table)
            if files is None:
                files = self._add(table, publication) if publication is not None else []
                failpoint("iceberg: files")
            try:
                self._commit(table, files, after)
            except CommitFailedException:
                if attempt == _TRIES - 1:
                    raise
                table = self.sink.table.table(
                    self.catalog
                )  # somebody was faster: look up whether it was a run of this query
                continue
            failpoint("iceberg: commit")
            self.tidy()
            return True
        return False

    def _commit(self, table: Any, files: list[str], after: Entry) -> None:
        with table.transaction() as transaction:
            if files:  # their names belong to this epoch alone
                transaction.add_files(files, snapshot_properties=_summary(after), check_duplicate_files=False)
            else:
                with transaction.update_snapshot(snapshot_properties=_summary(after)).fast_append():
                    pass

    def _create(self) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.transforms import IdentityTransform

        self.catalog.create_namespace_if_not_exists(self.sink.table.identifier[:-1])
        try:
            with (
                self.catalog.create_table_transaction(
                    self.sink.table.identifier, self._arrow, properties=_NEW_TABLE
                ) as made,
                made.update_spec() as spec,
            ):
                for name in self.sink.partition_by:
                    spec.add_field(name, IdentityTransform(), name)
        except TableAlreadyExistsError:
            pass
        return self.sink.table.table(self.catalog)

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, table: Any, publication: Publication) -> list[str]:
        """Bring the files to the table; nobody reads them before the commit names them. The same epoch has the same names."""
        places = []
        for number, (folder, content) in enumerate(self._files(publication)):
            name = f"{folder}part-{publication.epoch:09d}-{number:04d}-{publication.commit}.parquet"
            places.append(_put(table, name, content))
            self._small += len(content) < _SMALL
        return places

    def _files(self, publication: Publication) -> Iterator[tuple[str, bytes]]:
        """Yield the files to add: those that tasks wrote, or, for a partitioned table, their parts."""
        if not self.sink.partition_by:
            yield from (("", file.read_bytes()) for file in publication.files)
            return
        parts = publication.frame().partition_by(list(self.sink.partition_by), as_dict=True, maintain_order=True)
        for key, rows in parts.items():
            values = {n: None if v is None else str(v) for n, v in zip(self.sink.partition_by, key, strict=True)}
            yield short_folder_of(values, "null"), _parquet(rows)

    def tidy(self) -> None:
        """Merge many small files into a few, in a commit of its own that changes no row. If that fails, it is tried again after later epochs."""
        from pyiceberg.exceptions import CommitFailedException

        if self._small < _MANY:
            return
        table = self.sink.table.table(self.catalog)
        small: dict[Any, list[Any]] = defaultdict(list)
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < _SMALL and not task.delete_files:
                small[task.file.spec_id, tuple(task.file.partition)].append(task.file)
        several = [files for files in small.values() if len(files) > 1]
        self._small = sum(map(len, small.values()))
        if self._small < _MANY or not several:
            self._small -= len(small)  # a single file of a partition has nothing to be merged with
            return
        try:
            self._merge(table, several)
            self._small = 0
        except (CommitFailedException, OSError, ValueError) as error:
            self._small = 0
            self.owner.note(f"step {self.owner.step}: small files were not merged: {error}")

    def _merge(self, table: Any, groups: Sequence[Sequence[Any]]) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
            for number, group in enumerate(groups):
                for files in _batches(group):
                    parts = [pq.read_table(table.io.new_input(file.file_path).open()) for file in files]
                    rows = pl.concat([pl.DataFrame(part) for part in parts], how="diagonal")
                    place = _put(table, f"merged-{change.commit_uuid}-{number}-{len(parts)}.parquet", _parquet(rows))
                    change.append_data_file(parquet_file_to_data_file(table.io, table.metadata, place))
                    for file in files:
                        change.delete_data_file(file)

    def refused(self, problem: str, hint: str) -> SinkError:
        """Return the error that says what is wrong with the table."""
        return SinkError(self.owner.step, f"{self.sink.describe()} {problem}", hint)


def _form(table: Any) -> tuple[Any, ...]:
    """Return what changes when somebody changes the columns of a table, or what it is partitioned by."""
    return table.metadata.table_uuid, table.metadata.current_schema_id, table.metadata.default_spec_id


def _entry(table: Any) -> Entry | None:
    """Return the entry in the newest snapshot that has one."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if f"{_PREFIX}query" in summary:
            query, sink, checkpoint, generation, epoch, commit = (summary[_PREFIX + name] for name in _FIELDS)
            return Entry(query, sink, checkpoint, Generation(int(generation)), EpochNumber(int(epoch)), commit)
        before = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(before) if before is not None else None
    return None


def _summary(entry: Entry) -> dict[str, str]:
    return {_PREFIX + name: str(getattr(entry, name)) for name in _FIELDS}


def _put(table: Any, name: str, content: bytes) -> str:
    """Write a file where the table has its data, and say where that is."""
    place: str = table.location_provider().new_data_location(name)
    with table.io.new_output(place).create(overwrite=True) as file:
        file.write(content)
    return place


def _parquet(rows: pl.DataFrame) -> bytes:
    """Write a Parquet file with Arrow: Polars cuts off long texts in statistics, where PyIceberg looks for the value of a partition."""
    buffer = BytesIO()
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    pq.write_table(table, buffer, compression="zstd", compression_level=1)
    return buffer.getvalue()


def _batches(files: Sequence[Any]) -> Iterator[list[Any]]:
    """Put files together up to about the size that they should have."""
    batch: list[Any] = []
    for file in files:
        batch.append(file)
        if sum(f.file_size_in_bytes for f in batch) >= _FILE_SIZE:
            yield batch
            batch = []
    if len(batch) > 1:
        yield batch


def _same_paths(schema: pl.Schema) -> str | None:
    """Say which columns are one to Iceberg, which finds what is inside others by names with points.

    >>> _same_paths(pl.Schema({"a.b": pl.Int64(), "a": pl.Struct({"b": pl.Int64()})}))
    "'a.b' would be the name of two columns or fields: rename one"
    """
    paths = [path for name, dtype in schema.items() for path in _paths(name, dtype)]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    return None if twice is None else f"{twice!r} would be the name of two columns or fields: rename one"


def _paths(name: str, dtype: pl.DataType) -> Iterator[str]:
    yield name
    if isinstance(dtype, pl.List):
        yield from _paths(f"{name}.element", instance(dtype.inner))
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from _paths(f"{name}.{field.name}", instance(field.dtype))


def _kept_as(dtype: pl.DataType) -> pl.DataType:
    """Return the type in which a column is read back: short integers are stored as longer ones.

    >>> _kept_as(pl.List(pl.Int8()))
    List(Int32)
    """
    match dtype:
        case pl.Int8() | pl.Int16():
            return pl.Int32()
        case pl.List():
            return pl.List(_kept_as(instance(dtype.inner)))
        case pl.Struct():
            return pl.Struct({f.name: _kept_as(instance(f.dtype)) for f in dtype.fields})
    return dtype


@usage("st.iceberg_sink('shop.calls', catalog='default')")
def iceberg_sink(
    table: str, *, catalog: str | Mapping[str, str | Secret], partition_by: str | Sequence[str] = ()
) -> IcebergSink:
    """Write rows to an Iceberg table, each row exactly once. The table, and its namespace, are made if there are none.

    `catalog` is the name of a catalog in PyIceberg's settings, or the properties of one; any that PyIceberg knows will do. The epoch is in the summary of the
    snapshot that brings the rows. Small files are merged now and then.

    >>> st.iceberg_sink(
    ...     "lake.heavy", catalog={"type": "rest", "uri": "https://lake.example"}, partition_by="day"
    ... ).describe()
    'Iceberg table lake.heavy (catalog default)'
    """
    place = iceberg_place("iceberg_sink", table, catalog)
    return IcebergSink(place, names_to_partition("iceberg_sink", partition_by))
