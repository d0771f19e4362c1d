"""Newline-delimited JSON: one object per line, the schema declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from springtide.connectors import Read, Slice
from springtide.query.types import schema_from
from springtide.query.usage import usage
from springtide.sources.files import judged
from springtide.sources.json_objects import ObjectReader, row_of
from springtide.sources.line_files import LineSource
from springtide.sources.places import place_of
from springtide.sources.text_columns import check_types, typed


@dataclass(frozen=True, eq=False, kw_only=True)
class Json(LineSource):
    """The JSON files of a folder or pattern."""

    kind: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")

    def read(self, part: Slice) -> Read:
        """Read the lines as columns, convert what is written as text."""
        data, lines, faults = self.load(part)
        found, numbers, faults = ObjectReader(self.columns).read(data, lines, faults)
        rows, fits, reasons = typed(found, self.columns)
        faults |= {numbers[i]: reason for i, reason in reasons.items()}
        rejected = {i: (why, row_of(lines[i])) for i, why in faults.items()}
        return judged(part, rows, numbers.gather(fits), rejected)


@usage("st.json('calls/', schema={'src': pl.String, 'ts': st.TIME})")
def json(
    path: str | Path,
    *,
    schema: Mapping[str, Any],
    follow: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Json:
    """Read the newline-delimited JSON files of a folder (or a file, or a pattern), in the order of their names.

    Each line is an object with a row's columns by name; a column that it lacks is null. Times are ISO 8601 strings, decimals are numbers
    or strings. The input ends with the last file; with `follow` the query waits for more lines in it and for new files, under whatever names:
    each is read once, in the order in which they come.

    The path may be the address of an object store, `s3://bucket/folder`, with `storage_options` if the environment and profiles do not
    say enough. A file appears whole there; the folder is listed about once a second.

    A line that is not an object, has a column that the schema does not have, or a value that is not of its column's type, is at
    the stream's `rejected`.

    >>> st.json("clicks/*.jsonl", schema={"page": pl.String, "ts": st.TIME}).describe()
    'json clicks/*.jsonl'
    """
    columns = schema_from("(json)", "schema", schema)
    check_types("(json)", columns, nested=True)
    return Json(where=place_of("json", path, storage_options), follow=follow, columns=columns)
