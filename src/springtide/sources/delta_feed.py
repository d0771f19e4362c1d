"""The driver's part of reading a Delta table: which versions there are, and which rows of their files come next. No row is read here.

position   id      which table it is
           begin   the version whose files are all read first, as the table was then; null if only the log is followed
           next    version, number of the file in it, first row: where to go on
           rows    how many rows were taken
           end     the last version, if the input ends
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq

from springtide.connectors import ONE_STREAM, Feed, Owner, Slice, Take
from springtide.query.errors import SpringtideError
from springtide.query.plurals import plural
from springtide.sources.delta_log import File, UnreadableVersion, Version, difference, unreadable, version_of, whole
from springtide.sources.files import RowRange
from springtide.sources.parquet import row_groups

if TYPE_CHECKING:
    from springtide.sources.delta import Delta

_AHEAD = 200
"""How many versions are looked at ahead of reading, so that the backlog is known."""


class DeltaFeed(Feed):
    """Takes rows of the files that versions add."""

    def __init__(self, source: Delta, owner: Owner) -> None:
        """Look at the table at the first take."""
        self._source, self._step = source, owner.step
        self._files: Any = None
        self._versions: dict[int, tuple[File, ...]] = {}
        self._notes: list[str] = []
        self._pieces = lru_cache(maxsize=10_000)(self._look_into)

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take what comes next, in the order of the log."""
        position = self._opened(position)
        at, end = list(position["next"]), position["end"]
        rows, slices = position["rows"], list[Slice]()
        self._notes = []
        begin, stop = rows, self._source.stop
        limit = limit if stop is None else min(limit, stop - rows)
        while rows - begin < limit and (end is None or at[0] <= end):
            files = self._version(at[0], position["begin"])
            if files is None:
                break
            if at[1] >= len(files):
                self._versions.pop(at[0], None)
                at = [at[0] + 1, 0, 0]
                continue
            file = files[at[1]]
            piece = next((p for p in self._pieces(at[0], file, ts) if p.first + p.rows > at[2]), None)
            if piece is None:
                at = [at[0], at[1] + 1, 0]
                continue
            count = min(piece.first + piece.rows - at[2], limit - (rows - begin))
            greatest = 0 if ts is None else piece.greatest  # without time they can be read in any order
            slices.append(Slice(ONE_STREAM, rows, count, [at[0], file.path, dict(file.partition), at[2]], greatest))
            rows, at[2] = rows + count, at[2] + count
        return Take(
            tuple(slices),
            {**position, "next": at, "rows": rows},
            streams=(ONE_STREAM,),
            ended=rows == stop or (end is not None and self._is_done(at, end, position["begin"])),
            backlog=self._waiting(at, position),
            notes=tuple(self._notes),
        )

    # ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self, position: Any) -> dict[str, Any]:
        """Make sure, once per run, that it is the same table as before; return where to continue."""
        if self._files is not None and position is not None:
            return dict(position)
        table = self._source.table.table()
        if table is None:
            raise self._refused("does not exist", "create it first, or check the path")
        self._files = self._source.table.files(table)
        now, table_id = table.version(), table.metadata().id
        if features := unreadable(table.protocol().reader_features or (), table.metadata().configuration):
            raise self._refused(
                f"requires {', '.join(features)} of its readers, which Springtide does not support",
                "turn that off in the table, or read it with Spark: st.spark",
            )
        if position is None:
            start = self._source.start
            first = now if start is None else now + 1 if start == "latest" else int(start)
            return {
                "id": table_id,
                "begin": now if start is None else None,
                "next": [first, 0, 0],
                "rows": 0,
                "end": None if self._source.follow else now,
            }
        if table_id != position["id"] or now < position["next"][0] - 1:
            raise self._refused(
                f"is not the one that was read up to version {position['next'][0] - 1}: it was created again or restored",
                "start again with a new checkpoint",
            )
        return dict(position)

    def _version(self, number: int, begin: int | None) -> tuple[File, ...] | None:
        """Return the files that a version adds; None if there is no such version yet."""
        if number not in self._versions:
            found = self._whole(number) if number == begin else self._added(number)
            if found is None:
                return None
            self._versions[number] = found
        return self._versions[number]

    def _whole(self, number: int) -> tuple[File, ...]:
        """List the files of the table as it was, in the order in which they were written."""
        from deltalake.exceptions import DeltaError

        try:
            table = self._source.table.table(number)
            if any(len(batch) for batch in table.deletion_vectors()):
                raise self._refused(
                    "has rows deleted by deletion vectors",
                    "rewrite the table without them, and start again with a new checkpoint",
                )
            files = pl.DataFrame(table.get_add_actions())
        except DeltaError as error:
            raise self._refused(
                f"cannot be read as it was at version {number}: {error}",
                "its log has been cleaned up since; start again with a new checkpoint",
            ) from None
        if files.is_empty():
            return ()
        return whole(files.sort("modification_time", "path"))

    def _added(self, number: int) -> tuple[File, ...] | None:
        try:
            with self._files.open_input_stream(f"_delta_log/{number:020d}.json") as stream:
                text = stream.read().decode()
        except FileNotFoundError:
            if self._source.table.table().version() > number:
                raise self._refused(
                    f"has lost version {number} of its log: what that version and the next ones added is now unknown",
                    "logs are kept for 30 days unless the table says otherwise; start again with a new checkpoint",
                ) from None
            return None
        try:
            version = version_of(number, text)
        except UnreadableVersion as error:
            raise self._refused(
                f"can no longer be read: {error}",
                "rewrite the table without them, and start again with a new checkpoint",
            ) from None
        return self._accepted(version)

    def _accepted(self, version: Version) -> tuple[File, ...]:
        if version.unread:
            raise self._refused(
                f"requires {', '.join(version.unread)} of its readers from version {version.number} on, which Springtide does not support",
                "read the table with Spark: st.spark",
            )
        if version.schema is not None and (why := difference(self._source.schema(), version.schema)) is not None:
            raise self._refused(
                f"has changed at version {version.number}: it {why}",
                "stop the query and start it again, so that it is built with the new columns",
            )
        if version.removed:
            what = f"version {version.number} removes the rows of {plural(version.removed, 'file')} (DELETE, UPDATE, MERGE, overwrite)"
            if self._source.changes == "fail":
                raise self._refused(
                    f"cannot be read any further as a stream of added rows: {what}",
                    'skip such versions with changes="skip", or start again with a new checkpoint',
                )
            self._notes.append(f"{self._source.describe()}: {what} and adds {len(version.files)}: it was skipped")
            return ()
        return version.files

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look_into(self, version: int, file: File, ts: str | None) -> tuple[RowRange, ...]:
        try:
            with self._files.open_input_file(file.path) as content:
                meta = pq.ParquetFile(content).metadata
        except FileNotFoundError:
            raise lost(self._source, version, file.path, file.rows) from None
        names = meta.schema.to_arrow_schema().names
        return row_groups(meta, ts if ts in names else None)

    def _is_done(self, at: list[int], end: int, begin: int | None) -> bool:
        return at[0] > end or (at[0] == end and at[1] >= len(self._version(end, begin) or ()))

    def _waiting(self, at: list[int], position: dict[str, Any]) -> int:
        """Count the rows that are there but were not taken, according to the log."""
        last = at[0] + _AHEAD if position["end"] is None else min(position["end"], at[0] + _AHEAD)
        waiting = 0
        for number in range(at[0], last + 1):
            files = self._version(number, position["begin"])
            if files is None:
                break
            waiting += sum(f.rows for f in files[at[1] if number == at[0] else 0 :])
        return max(0, waiting - at[2])

    def _refused(self, problem: str, hint: str) -> SpringtideError:
        return SpringtideError(f"step {self._step}: {self._source.describe()} {problem}; {hint}")


def lost(source: Delta, version: int, path: str, rows: int) -> SpringtideError:
    """Return the error for a file that was gone before it was read."""
    many = f"its {plural(rows, 'row')}" if rows else "its rows"
    return SpringtideError(
        f"{source.describe()} has lost {path}, a file of version {version}, before it was read: {many} can no longer be read;"
        " restore the file if it was VACUUMed, or start again with a new checkpoint"
    )
