"""CSV files: one row per line, the schema declared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from csv import reader
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from springtide.connectors import Read, Slice
from springtide.query.errors import QueryError, nearest, shown
from springtide.query.plurals import plural
from springtide.query.types import schema_from
from springtide.query.usage import usage
from springtide.sources.files import judged
from springtide.sources.line_files import BOM, LineSource, first_line, raw
from springtide.sources.places import place_of
from springtide.sources.text_columns import check_types, others, typed

_SPECIAL = r"\.+*?()|[]{}^$#&-~"
"""What must be escaped in a regular expression."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Csv(LineSource):
    """The CSV files of a folder or pattern."""

    kind: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    separator: str

    def read(self, part: Slice) -> Read:
        """Read the lines, split them into fields, convert the fields."""
        file = part.data[0]
        data, lines, faults = self.load(part)
        names = _names(first_line(file, self.where), self.separator) if self.header else list(self.columns)
        if wrong := self._wrong_header(names):
            reason = f"{os.path.basename(file)}: {wrong}"
            faults = dict.fromkeys(range(lines.len()), reason)
        rows, numbers, rejected = read_fields(lines, names, faults, self.columns, self.separator, data)
        return judged(part, rows, numbers, rejected)

    def _wrong_header(self, names: list[str]) -> str | None:
        if len(set(names)) < len(names):
            return f"the header {','.join(names)!r} has a name twice"
        other = [n for n in names if n not in self.columns]
        return (
            f"there is no column {other[0]!r} in the source's schema; {nearest(other[0], self.columns)}"
            if other
            else None
        )


@usage("st.csv('calls/', schema={'src': pl.String, 'ts': st.TIME})")
def csv(
    path: str | Path,
    *,
    schema: Mapping[str, Any],
    follow: bool = False,
    header: bool = True,
    separator: str = ",",
    storage_options: Mapping[str, Any] | None = None,
) -> Csv:
    """Read the CSV files of a folder (or a file, or a pattern), in the order of their names.

    Each line is a row: a field in quotes may hold the separator, but not a line break. With `header` the first line of each file names the
    columns, in whatever order; without it, they are those of the schema. An empty field is null, `""` is an empty string. The input ends with
    the last file; with `follow` the query waits for more lines in it and for new files, under whatever names: each is read once, in the
    order in which they come.

    The path may be the address of an object store, `s3://bucket/folder`, with `storage_options` if the environment and profiles do not
    say enough. A file appears whole there; the folder is listed about once a second.

    A line with too many or too few fields, or with a value that is not of its column's type, is at the stream's `rejected`.

    >>> st.csv("cdr/", schema={"src": pl.String, "ts": st.TIME}, follow=True).describe()
    'csv cdr/, followed'
    """
    columns = schema_from("(csv)", "schema", schema)
    check_types("(csv)", columns, nested=False)
    check_separator("(csv)", separator)
    return Csv(
        where=place_of("csv", path, storage_options), follow=follow, columns=columns, header=header, separator=separator
    )


def check_separator(step: str, separator: Any) -> None:
    """Refuse what cannot separate the fields of a line."""
    if not isinstance(separator, str) or len(separator.encode()) != 1 or separator in '"\r\n':
        raise QueryError(step, f"separator={shown(separator)} is not one character", "write for example ';' or '\\t'")


def read_fields(
    lines: pl.Series,
    names: list[str],
    faults: Mapping[int, str],
    columns: pl.Schema,
    separator: str,
    data: bytes | None = None,
) -> tuple[pl.DataFrame, pl.Series, dict[int, tuple[str, Mapping[str, Any]]]]:
    """Read lines, except those with known faults; `data` has the same lines, joined.

    Return the rows, the numbers of their lines, and the reason and content of every other line by its number.
    """
    faults = _faults(lines, len(names), separator) | dict(faults)
    good = others(lines.len(), faults)
    if faults or data is None:
        data = "\n".join([*lines.gather(good), ""]).encode()  # the last one has its end too: it may be empty
    texts = _fields(data, names, separator)
    rows, fits, reasons = typed(texts, columns)
    rejected: dict[int, tuple[str, Mapping[str, Any]]] = {i: (why, raw(lines[i])) for i, why in faults.items()}
    rejected |= {good[i]: (why, texts.row(i, named=True)) for i, why in reasons.items()}
    return rows, good.gather(fits), rejected


def _faults(lines: pl.Series, width: int, separator: str) -> dict[int, str]:
    """Return, for each line that cannot be split into the right number of fields, the reason."""
    faults: dict[int, str] = {}
    bare = lines
    quoted = lines.str.contains('"', literal=True).arg_true()
    if quoted.len():
        other = f"\\{separator}" if separator in _SPECIAL else separator
        field = rf'(?:"(?:[^"]|"")*"|[^"{other}]*)'
        these = lines.gather(quoted)
        odd = ~these.str.contains(rf"^{field}(?:{other}{field})*$")
        faults |= dict.fromkeys(quoted.filter(odd), "the line has a quote inside a field, or one that is not closed")
        bare = lines.clone().scatter(quoted, these.str.replace_all(r'"(?:[^"]|"")*"', ""))
    widths = bare.str.count_matches(separator, literal=True) + 1
    for i in (widths != width).arg_true():
        faults.setdefault(i, f"the line has {plural(widths[i], 'field')}, not {width}")
    return faults


def _fields(data: bytes, names: list[str], separator: str) -> pl.DataFrame:
    """Split lines that are known to be sound."""
    columns = dict.fromkeys(names, pl.String())
    if not data:
        return pl.DataFrame(schema=columns)
    if data.startswith(BOM):  # here it is text, which Polars would leave out at the beginning
        return _fields(separator.encode() * (len(names) - 1) + b"\n" + data, names, separator)[1:]
    return pl.read_csv(data, has_header=False, schema=columns, separator=separator)


def _names(line: bytes, separator: str) -> list[str]:
    return next(reader([line.decode(errors="replace")], delimiter=separator), None) or [""]
