"""Reads sample data for the sources of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from springtide.cli.errors import CommandError
from springtide.query.errors import nearest
from springtide.query.graph import Graph
from springtide.query.steps import Source
from springtide.query.types import type_text

_FORMATS: Mapping[str, str] = {".parquet": "parquet", ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson"}


def read_samples(graph: Graph, wanted: Sequence[str], limit: int) -> dict[str, pl.DataFrame]:
    """Read `PATH` for the only source, or `SOURCE=PATH` for each; at most `limit` rows of each."""
    sources = graph.of_kind(Source)
    paths: dict[str, Path] = {}
    for text in wanted:
        name, equals, path = text.partition("=")
        if equals and not Path(text).exists():
            if name not in sources:
                raise CommandError(f"the query has no source {name!r}; {nearest(name, sources)}")
            paths[name] = Path(path)
        elif len(sources) > 1:
            raise CommandError(
                f"the query has several sources; say which one {text} is for: --sample {next(iter(sources))}={text}"
            )
        else:
            paths[next(iter(sources))] = Path(text)
    if missing := [name for name in sources if name not in paths]:
        raise CommandError(f"there is no sample for {', '.join(missing)}; add --sample {missing[0]}=PATH")
    return {name: read_sample(name, paths[name], sources[name].columns, limit) for name in sources}


def read_sample(source: str, path: Path, schema: pl.Schema, limit: int) -> pl.DataFrame:
    """Read a file, or the files of a folder in the order of their names, as rows of a source."""
    files, format = _files(path)
    try:
        frame = _READERS[format](files, schema, limit)
        if missing := [column for column in schema if column not in frame.columns]:
            raise CommandError(
                f"{path} has no column {missing[0]!r}, which {source} needs; it has {', '.join(frame.columns)}"
            )
        rows = frame.select(_cast(column, frame.schema[column], dtype) for column, dtype in schema.items())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise CommandError(f"{path} cannot be read for {source}: {str(error).splitlines()[0]}") from None
    if rows.is_empty():
        raise CommandError(f"{path} has no rows")
    return rows


def _files(path: Path) -> tuple[list[Path], str]:
    if not path.exists():
        raise CommandError(f"there is no file {path}")
    files = sorted(f for f in path.iterdir() if f.suffix in _FORMATS) if path.is_dir() else [path]
    formats = {_FORMATS.get(f.suffix) for f in files}
    if len(formats) != 1 or None in formats:
        raise CommandError(f"{path} is not Parquet, CSV or NDJSON ({', '.join(_FORMATS)}), or is a mix of them")
    return files, str(formats.pop())


def _parquet(files: list[Path], schema: pl.Schema, limit: int) -> pl.DataFrame:
    return pl.scan_parquet(files).head(limit).collect()


def _csv(files: list[Path], schema: pl.Schema, limit: int) -> pl.DataFrame:
    return pl.scan_csv(files, schema_overrides=_as_text(schema)).head(limit).collect()


def _ndjson(files: list[Path], schema: pl.Schema, limit: int) -> pl.DataFrame:
    return pl.scan_ndjson(files, schema_overrides=_as_text(schema)).head(limit).collect()


_READERS: Mapping[str, Callable[[list[Path], pl.Schema, int], pl.DataFrame]] = {
    "parquet": _parquet,
    "csv": _csv,
    "ndjson": _ndjson,
}


def _as_text(schema: pl.Schema) -> dict[str, pl.DataType]:
    """Read times as the text that they are in such files."""
    return {name: pl.String() if dtype.is_temporal() else dtype for name, dtype in schema.items()}


def _cast(column: str, found: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    if found == wanted:
        return pl.col(column)
    if isinstance(wanted, pl.Datetime):
        if found == pl.String:
            return pl.col(column).str.to_datetime(time_unit=wanted.time_unit, time_zone=wanted.time_zone)
        if isinstance(found, pl.Datetime) and found.time_zone is None and wanted.time_zone is not None:
            return pl.col(column).dt.replace_time_zone(wanted.time_zone).cast(wanted)
    if found == pl.String and wanted in (pl.Date, pl.Time):
        return pl.col(column).str.strptime(wanted)  # type: ignore[arg-type]
    if found == pl.String or wanted == pl.String:
        raise CommandError(f"the column {column!r} is {type_text(found)}, not {type_text(wanted)}")
    return pl.col(column).cast(wanted)
