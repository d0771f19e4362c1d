"""A Delta table. In one commit of its log: the files of an epoch, and which epoch of which checkpoint that is.

    metaData   springtide.owner = query, sink, checkpoint, run: written once by each run, when it claims the table; a property of the table, or of a column
    txn        springtide.epoch, springtide.commit: with every epoch
    add        the files

A commit is a file that is created only if there is none with its number. A writer that loses that race looks whether the winner wrote one of these two
`txn` entries or the metadata; if so, the commit fails: another run was faster, or this very commit had succeeded although its answer was lost.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

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
    flush,
    make_folder,
)
from springtide.query.errors import SinkError
from springtide.query.usage import usage
from springtide.sinks.columns import nested, twins
from springtide.sinks.lakes.columns import names_to_partition, unfit_for_lakes, unfit_to_partition
from springtide.sinks.lakes.folders import folder_of
from springtide.sinks.partitions import NULL, PartitionedFiles, key_of
from springtide.tables.delta import DeltaPlace, delta_place

OWNER, EPOCH, COMMIT = "springtide.owner", "springtide.epoch", "springtide.commit"
_FILE_SIZE = 128 * 2**20
"""Small files are merged into files of about this size."""
_SMALL = _FILE_SIZE // 4
_MANY = 24
"""How many small files are needed before they are merged."""
_WITH_FEATURES = 3
"""From this version of a table's protocol on, the library lets every change of a property demand of readers that they know variants, which most do not."""
_TAKEN_FOR_NULL = ("", NULL)
"""What Delta's log, or its library, reads as null where it is a value to partition by."""


@dataclass(frozen=True)
class DeltaFiles(PartitionedFiles):
    """Parquet files for a partitioned table. Values that cannot be partitioned by are refused while nothing is committed."""

    sink: str = "delta_sink"

    def folder(self, name: str, value: Any) -> str:
        """Return the name of the folder for rows with this value."""
        return folder_of({name: _partition_value(value)}, NULL)[:-1]

    def check(self, values: pl.Series) -> None:
        """Refuse texts that cannot be names, and those that are read as null."""
        if (null := values.filter(values.is_in(_TAKEN_FOR_NULL))).len():
            problem = f"{values.name!r} is {null[0]!r}, which readers would take for null"
            raise self.refused(problem, f"change {values.name!r}")
        super().check(values)


@dataclass(frozen=True)
class DeltaSink(LedgerSink):
    """A Delta table."""

    table: DeltaPlace
    partition_by: tuple[str, ...] = ()

    advice = Advice(
        elsewhere="give this sink another table",
        anew="to start over, remove the table",
        back="restore the version of the table that had epoch {epoch} last",
    )

    @property
    def outbox(self) -> Outbox:
        """Tasks write Parquet files, which become the table's, or are distributed to its partitions."""
        if not self.partition_by:
            return ParquetFiles()
        return DeltaFiles(columns=self.partition_by, above=None if self.table.folder else key_of(self.table.path))

    def describe(self) -> str:
        """Say where it is."""
        return f"Delta table {self.table}"

    @property
    def place(self) -> Hashable:
        """Where the rows go: no two sinks can share it."""
        folder = self.table.folder
        return os.path.realpath(folder) if folder is not None else self.table.path

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what a Delta table cannot hold."""
        return unfit_to_partition(schema, self.partition_by) or unfit_for_lakes(schema) or _same_names(schema)

    def connect(self, owner: Owner) -> Target:
        """Look at the table, and refuse one with other columns."""
        return DeltaTarget(self, owner)


class DeltaTarget(Target):
    """A Delta table, as one run sees it."""

    def __init__(self, sink: DeltaSink, owner: Owner) -> None:
        """Check what is there; nothing is made yet."""
        from deltalake import Schema

        self.sink, self.owner = sink, owner
        arrow = pl.DataFrame(schema=owner.schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        self.schema = Schema.from_arrow(arrow)
        self._small = _MANY  # look at what is there, at first
        table = sink.table.table()
        if table is not None:
            self._check_columns(table)
            self._check_past(table)

    def _check_columns(self, table: Any) -> None:
        there = {field.name: field for field in table.schema().fields}
        for field in self.schema.fields:
            if field.name not in there:
                raise self.refused(
                    f"has no column {field.name!r}",
                    f"it has {', '.join(there)}; add the column there, or select others",
                )
            if there[field.name].type != field.type:
                kinds = f"{there[field.name].type}, but rows have {field.type}"
                raise self.refused(f"has {field.name!r} as {kinds}", "cast it before this sink")
        ours = {field.name for field in self.schema.fields}
        if needed := [name for name, field in there.items() if not field.nullable and name not in ours]:
            raise self.refused(f"needs a value for {needed[0]!r}", "add that column before this sink")
        if tuple(table.metadata().partition_columns) != self.sink.partition_by:
            columns = ", ".join(table.metadata().partition_columns) or "nothing"
            raise self.refused(f"is partitioned by {columns}", "make partition_by say the same")

    def _check_past(self, table: Any) -> None:
        if self.owner.commit is not None and self._entry(table) is None and table.file_uris():
            raise self.refused(
                f"has files but no entry that says whose they are, so it is unknown whether those of epoch {self.owner.epoch} are among them",
                "restore a version of the table that has its entry, or give this sink another table",
            )

    # ── the ledger ────────────────────────────────────────────────────────────────────────────────────────────────

    def entry(self) -> Entry | None:
        """Look up what the table's log says."""
        table = self.sink.table.table()
        return None if table is None else self._entry(table)

    def _entry(self, table: Any) -> Entry | None:
        owner = _owner(table)
        if owner is None:
            return None
        epoch, commit = table.transaction_version(EPOCH), table.transaction_version(COMMIT)
        if epoch is None or commit is None:
            return None
        known = json.loads(owner)
        mark = f"{commit % 2**64:016x}" if epoch >= 0 else ""
        return Entry(known["query"], known["sink"], known["checkpoint"], known["generation"], epoch, mark)

    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        """Replace the entry and add the files, in one commit."""
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError

        table = self.sink.table.table()
        if table is None:
            table = DeltaTable.create(
                self.sink.table.uri,
                schema=self.schema,
                partition_by=list(self.sink.partition_by),
                storage_options=self.sink.table.revealed,
            )
        if self._entry(table) != before:
            return False
        self._check_columns(table)  # somebody may have changed them
        try:
            if publication is None:
                self._claim(table, after)
            else:
                adds = self._add(publication)
                failpoint("delta: files")
                table.create_write_transaction(adds, "append", self.schema, commit_properties=_marks(after))
                failpoint("delta: commit")
                self._small += sum(add.size < _SMALL for add in adds)
                self.tidy()
        except CommitFailedError as error:
            if "Concurrent transaction" in str(error) or "Metadata changed" in str(error):
                return False
            raise
        return True

    def _claim(self, table: Any, after: Entry) -> None:
        owner = {
            "query": after.query,
            "sink": after.sink,
            "checkpoint": after.checkpoint,
            "generation": after.generation,
        }
        properties, marks = {OWNER: json.dumps(owner)}, _marks(after)
        column = _column_with_owner(table)
        if column is None and table.protocol().min_reader_version < _WITH_FEATURES:
            table.alter.set_table_properties(properties, raise_if_not_exists=False, commit_properties=marks)
        else:
            column = column or self.schema.fields[0].name
            table.alter.set_column_metadata(column, properties, commit_properties=marks)

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, publication: Publication) -> list[Any]:
        """Bring the files to the table; nobody reads them before the commit names them. The same epoch has the same names."""
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        adds = []
        for number, (values, file, rows) in enumerate(self._files(publication)):
            name = f"{folder_of(values, NULL)}part-{publication.epoch:09d}-{number:04d}-{publication.commit}.parquet"
            self._put(file, name)
            size = file.stat().st_size
            adds.append(AddAction(name, size, values, now, True, json.dumps({"numRecords": rows})))
        return adds

    def _files(self, publication: Publication) -> Iterator[tuple[Mapping[str, str | None], Path, int]]:
        """Yield the files to add: those that tasks wrote, or, for a partitioned table, their parts."""
        if not self.sink.partition_by:
            yield from (({}, file, rows) for file, rows in zip(publication.files, publication.rows, strict=True))
            return
        columns = list(self.sink.partition_by)
        parts = publication.frame().partition_by(columns, as_dict=True, maintain_order=True)
        for number, (key, rows) in enumerate(parts.items()):
            file = publication.files[0].with_name(f".{publication.commit}-{number}.parquet")
            try:
                ParquetFiles().write(rows.drop(columns), file)
                yield dict(zip(columns, map(_partition_value, key), strict=True)), file, rows.height
            finally:
                file.unlink(missing_ok=True)

    def _put(self, file: Path, name: str) -> None:
        folder = self.sink.table.folder
        if folder is None:
            import obstore

            options = {key.lower(): value for key, value in self.sink.table.revealed.items()}
            plain = next((value for key, value in options.items() if key.endswith("allow_http")), "false")
            config: Any = {key: value for key, value in options.items() if not key.endswith("allow_http")}
            store = obstore.store.from_url(
                self.sink.table.uri, config=config, client_options={"allow_http": plain.lower() == "true"}
            )
            obstore.put(store, name, file)
            return
        target = folder / name
        partial = target.with_name(f".{target.name}.partial")
        make_folder(target.parent)
        partial.unlink(missing_ok=True)
        try:
            os.link(file, partial)  # the same file under another name, if possible
        except OSError:
            shutil.copyfile(file, partial)
        flush(partial)
        os.replace(partial, target)
        flush(target.parent)

    def tidy(self) -> None:
        """Merge many small files into a few, in a commit of its own that changes no row. If that fails, it is tried again after later epochs."""
        from deltalake.exceptions import DeltaError

        if self._small < _MANY:
            return
        self._small = 0
        table = self.sink.table.table()
        sizes = pl.DataFrame(table.get_add_actions())["size_bytes"]
        if int((sizes < _SMALL).sum()) >= _MANY:
            try:
                table.optimize.compact(target_size=_FILE_SIZE, max_concurrent_tasks=1)
            except DeltaError as error:
                self.owner.note(f"step {self.owner.step}: small files were not merged: {error}")
        else:
            self._small = int((sizes < _SMALL).sum())

    def refused(self, problem: str, hint: str) -> SinkError:
        """Return the error that says what is wrong with the table."""
        return SinkError(self.owner.step, f"{self.sink.describe()} {problem}", hint)


def _owner(table: Any) -> str | None:
    """Return the owner as it is written: in a column, where it overrides that of the table."""
    column = _column_with_owner(table)
    if column is None:
        found: str | None = table.metadata().configuration.get(OWNER)
        return found
    return next(str(field.metadata[OWNER]) for field in table.schema().fields if field.name == column)


def _column_with_owner(table: Any) -> str | None:
    return next((field.name for field in table.schema().fields if OWNER in field.metadata), None)


def _same_names(schema: pl.Schema) -> str | None:
    """Say which names are one to Delta, which does not tell small letters from capitals."""
    structs = (part for dtype in schema.values() for part in nested(dtype) if isinstance(part, pl.Struct))
    for names in (schema.names(), *([field.name for field in struct.fields] for struct in structs)):
        if (found := twins(names)) is not None:
            return f"{found[0]!r} and {found[1]!r} are the same name to Delta: rename one"
    return None


def _marks(entry: Entry) -> Any:
    from deltalake import CommitProperties, Transaction

    commit = int(entry.commit or "0", 16)
    signed = commit - 2**64 if commit >= 2**63 else commit
    about = {"springtide": json.dumps({"query": entry.query, "sink": entry.sink, "epoch": entry.epoch})}
    return CommitProperties(
        custom_metadata=about, app_transactions=[Transaction(EPOCH, entry.epoch), Transaction(COMMIT, signed)]
    )


def _partition_value(value: Any) -> str | None:
    """Write a value as Delta's log does."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


@usage("st.delta_sink('out/')")
def delta_sink(
    path: str | Path,
    *,
    partition_by: str | Sequence[str] = (),
    options: Mapping[str, str | Secret] | None = None,
) -> DeltaSink:
    """Write rows to a Delta table, in a folder or an object store, each row exactly once. The table is made if there is none.

    The epoch is in the table's log, in one commit with the rows. Small files are merged now and then. `options` are those of the object store.

    >>> st.delta_sink("s3://lake/heavy", partition_by="day", options={"AWS_REGION": "eu-north-1"}).describe()
    'Delta table s3://lake/heavy'
    """
    return DeltaSink(delta_place("delta_sink", path, options), names_to_partition("delta_sink", partition_by))
