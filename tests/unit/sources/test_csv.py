"""CSV files: every line is a row at its position, accepted or rejected with a reason."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.sources.csv import Csv
from tests.unit.sources.conftest import Drain, Everything

XY = {"x": pl.Int64, "y": pl.String}


def write(folder: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def read(tmp_path: Path, drain: Drain) -> Any:
    """`read(text, **options)` reads one file of this text."""

    def run(text: str | bytes, *, limit: int = 10**9, **options: Any) -> Everything:
        return drain(st.csv(write(tmp_path, text), **({"schema": XY} | options)), limit)

    return run


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_with_a_header_in_any_order(read: Any) -> None:
    got = read("y,x\na,1\nb,2\n")
    assert list(got.rows.values()) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    assert got.reasons == {}


def test_without_a_header_columns_are_those_of_the_schema(read: Any) -> None:
    assert list(read("1,a\n2,b\n", header=False).rows.values()) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


def test_a_column_that_is_not_there_is_null(read: Any) -> None:
    assert list(read("x\n1\n").rows.values()) == [{"x": 1, "y": None}]


@pytest.mark.parametrize("separator", [";", "\t", "|", " ", "^", "]", "\\", "-", "."])
def test_other_separators(read: Any, separator: str) -> None:
    text = 'x,y\n1,a\n2,"b,c"\n'.replace(",", separator)
    assert read(text, separator=separator).values("y") == ["a", f"b{separator}c"]


def test_empty_is_null_and_quoted_empty_is_an_empty_text(read: Any) -> None:
    assert read('x,y\n1,\n2,""\n,c\n').values("y") == [None, "", "c"]


def test_quotes_hold_separators_and_quotes(read: Any) -> None:
    assert read('x,y\n1,"a,b"\n"2","say ""hi"""\n3,""""\n').values("y") == ["a,b", 'say "hi"', '"']


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "end"])
def test_line_ends(read: Any, end: str, last: str) -> None:
    text = end.join(["x,y", "1,a", '2,"b"']) + (end if last else "")
    assert read(text).values("y") == ["a", "b"]


def test_a_byte_order_mark_is_no_part_of_a_name(read: Any) -> None:
    assert read("\ufeffx,y\n1,a\n").values("x") == [1]
    assert read("\ufeff1,a\n", header=False).values("x") == [1]


@pytest.mark.parametrize("text", ["", "x,y", "x,y\n", "\ufeff"])
def test_a_file_without_rows(read: Any, text: str) -> None:
    got = read(text)
    assert (got.rows, got.reasons) == ({}, {})
    assert got.takes[-1].ended


def test_one_column_may_have_empty_lines(read: Any) -> None:
    got = read('x\n1\n\n""\n4\n\n', schema={"x": pl.String})
    assert got.values("x") == ["1", None, "", "4", None]
    got = read('x\n"a"b\n\n', schema={"x": pl.String})  # the only one that is left
    assert got.values("x") == [None]
    assert len(got.reasons) == 1


# ── what does not fit ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_that_do_not_fit_are_rejected_at_their_places_and_shift_no_other(read: Any) -> None:
    lines = ["1,a", "two,b", "3", "4,d,e", '5,"open', '6,f"f"', "", "7,g", "8.0,h", "9,i"]
    got = read("x,y\n" + "\n".join(lines))
    assert {p: row["x"] for p, row in got.rows.items()} == {0: 1, 7: 7, 9: 9}
    quote = "the line has a quote inside a field, or one that is not closed"
    assert got.reasons == {
        1: "column 'x': 'two' is not i64",
        2: "the line has 1 field, not 2",
        3: "the line has 3 fields, not 2",
        4: quote,
        5: quote,
        6: "the line has 1 field, not 2",
        8: "column 'x': '8.0' is not i64",
    }
    assert got.rejected[1] == {"x": "two", "y": "b"}
    assert got.rejected[3] == {"line": "4,d,e"}
    assert got.rejected[5] == {"line": '6,f"f"'}


def test_a_quote_that_is_not_closed_swallows_no_line(read: Any) -> None:
    got = read('x,y\n1,"a\n2,b\n3,"c\n4,d\n')
    assert got.values("x") == [2, 4]
    assert sorted(got.reasons) == [0, 2]


def test_a_line_that_is_not_utf8(read: Any) -> None:
    got = read("x,y\n1,ä\n".encode() + b"2,\xff\n3,c\n" + "4,\ufffd\n".encode())
    assert got.values("y") == ["ä", "c", "\ufffd"]
    assert got.reasons == {1: "the line is not UTF-8"}
    assert got.rejected[1] == {"line": "2,\ufffd"}


def test_the_first_column_that_does_not_fit_is_named(read: Any) -> None:
    got = read("b,a\nx,y\n1,z\n", schema={"a": pl.Int8, "b": pl.Int8})
    assert got.reasons == {0: "column 'a': 'y' is not i8", 1: "column 'a': 'z' is not i8"}


def test_a_long_value_is_cut(read: Any) -> None:
    assert len(read(f"x,y\n{'9' * 1000},a\n").reasons[0]) < 80


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("x,z", "a.csv: there is no column 'z' in the source's schema; there are: x, y"),
        ("x,yy", "a.csv: there is no column 'yy' in the source's schema; did you mean 'y'?"),
        ("x,x", "a.csv: the header 'x,x' has a name twice"),
        ("", "a.csv: there is no column '' in the source's schema; there are: x, y"),
    ],
)
def test_a_header_with_other_names_rejects_all_rows(read: Any, header: str, reason: str) -> None:
    got = read(f"{header}\n1,a\n2,b\n")
    assert got.rows == {}
    assert got.reasons == {0: reason, 1: reason}
    assert got.rejected[1] == {"line": "2,b"}


def test_a_header_that_is_not_utf8_rejects_all_rows(read: Any) -> None:
    got = read(b"x,\xff\n1,a\n")
    assert list(got.reasons) == [0]


# ── types ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
TYPES: list[tuple[Any, dict[str, Any], list[str]]] = [
    (pl.Int64, {"5": 5, "-3": -3, "+7": 7, "007": 7}, ["5.0", " 5", "5 ", "1e3", "0x1", "five", "9" * 20, "1_000"]),
    (pl.Int8, {"127": 127, "-128": -128}, ["128", "-129"]),
    (pl.UInt64, {str(2**64 - 1): 2**64 - 1}, ["-1", str(2**64)]),
    (pl.Float64, {"1.5": 1.5, "2": 2.0, "1e3": 1000.0, "-inf": -math.inf}, ["1,5", "one", " 1"]),
    (pl.Float32, {"0.5": 0.5}, ["half"]),
    (pl.Boolean, {"true": True, "FALSE": False, "True": True}, ["1", "yes", "t"]),
    (pl.String, {"5": "5", " a ": " a "}, []),
    (pl.Date, {"2024-02-29": date(2024, 2, 29)}, ["2023-02-29", "29.2.2024", "2024-2-9", "2024-02-29T00:00:00"]),
    (pl.Time, {"12:34:56": time(12, 34, 56), "12:34:56.5": time(12, 34, 56, 500000)}, ["12:34", "25:00:00", "noon"]),
    (st.TIME, {"2024-02-29T12:00:00": NOON, "2024-02-29 13:00:00+01:00": NOON}, ["2024-02-30", "1709208000", "noon"]),
    (pl.Datetime("ms"), {"2024-02-29T13:00:00+01:00": datetime(2024, 2, 29, 12)}, ["noon"]),
    (pl.Datetime("us", "Europe/Madrid"), {"2024-02-29T12:00:00Z": NOON}, ["noon"]),
    (pl.Decimal(6, 2), {"1.25": Decimal("1.25"), "-7": Decimal(-7), "1.5000": Decimal("1.5")}, ["1.255", "99999", "x"]),
    (pl.Enum(["a", "b"]), {"a": "a"}, ["c"]),
    (pl.Categorical(), {"anything": "anything"}, []),
]


@pytest.mark.parametrize(("dtype", "good", "bad"), TYPES, ids=[str(t[0]) for t in TYPES])
def test_every_type(read: Any, dtype: Any, good: dict[str, Any], bad: list[str]) -> None:
    lines = [*good, *bad, *good]
    got = read("v;n\n" + "".join(f"{text};\n" for text in lines), schema={"v": dtype, "n": pl.Int64}, separator=";")
    assert got.values("v") == [*good.values()] * 2
    assert list(got.reasons) == list(range(len(good), len(good) + len(bad)))
    for reason, text in zip(got.reasons.values(), bad, strict=True):
        assert reason.startswith(f"column 'v': {text[:5]!r}"[:15])
        assert " is not " in reason


@pytest.mark.parametrize(
    "dtype",
    [pl.List(pl.Int64), pl.Struct({"a": pl.Int64}), pl.Binary, pl.Duration("us"), pl.Int128, pl.Null, pl.Object],
)
def test_types_that_a_csv_file_cannot_hold(dtype: Any) -> None:
    with pytest.raises(st.QueryError, match=r"\(csv\): 'v' is .*; declare it as pl.String"):
        st.csv("a.csv", schema={"x": pl.Int64, "v": dtype})


@pytest.mark.parametrize("separator", ["", ",,", '"', "\n", "ä", 5, None])
def test_separators_that_are_none(separator: Any) -> None:
    with pytest.raises(st.QueryError, match="is not one character"):
        st.csv("a.csv", schema=XY, separator=separator)


def test_a_schema_must_be_declared() -> None:
    with pytest.raises(st.QueryError, match="'schema' is missing"):
        st.csv("a.csv")  # type: ignore[call-arg]


# ── cuts ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_any_cut_gives_the_same(read: Any, limit: int) -> None:
    lines = [f"{i},{'a' * (i % 5)}" if i % 4 else f"bad{i},b" for i in range(40)]
    text = "x,y\n" + "\n".join(lines)
    whole, cut = read(text), read(text, limit=limit)
    assert (cut.rows, cut.reasons, cut.rejected) == (whole.rows, whole.reasons, whole.rejected)


PIECES = some.lists(some.sampled_from(["a", "1", ",", ",", '"', '""', "\n", "\r\n", " ", "ä", "\ufeff"]), max_size=30)


@settings(max_examples=150)
@given(pieces=PIECES, header=some.booleans(), limit=some.integers(1, 5), bad=some.booleans())
def test_whatever_is_in_a_file_every_line_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], header: bool, limit: int, bad: bool
) -> None:
    body = "".join(pieces).encode() + (b"\xff" if bad else b"")
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(b"x,y\n" + body if header else body)
    source = st.csv(path, schema={"x": pl.Int64, "y": pl.String}, header=header)
    lines = body.removeprefix(b"" if header else b"\xef\xbb\xbf").split(b"\n")
    lines = lines[:-1] if not lines[-1] else lines
    whole = _all(source, 10**9)
    assert sorted(whole) == list(range(len(lines)))
    assert _all(source, limit) == whole
    for i, line in enumerate(lines):
        if isinstance(whole[i], tuple) and b'"' not in line:
            x, y = line.removesuffix(b"\r").decode().split(",")
            assert whole[i] == (int(x) if x else None, y or None)


def _all(source: Csv, limit: int) -> dict[int, Any]:
    """Position → row, or reason."""
    found: dict[int, Any] = {}
    position = None
    while True:
        take = source.take(position, limit, None)
        for part in take.slices:
            read = source.read(part)
            found |= {row[-1]: row[:-1] for row in read.rows.collect().rows()}
            found |= {wrong["position"]: wrong["reason"] for wrong in read.rejected}
        position = take.position
        if take.ended:
            return found


def test_the_reference_gives_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "x,y\n1,a\nz,b\n3\n4,d\n")
    source = st.source("s", st.csv(path, schema=XY))
    query = st.Query("q", source.to(st.memory_sink(), name="in"), source.rejected.to(st.memory_sink(), name="out"))
    result = query.run_reference()
    assert result.rows("in").rows() == [(1, "a"), (4, "d")]
    assert result.rows("out").select("position", "reason", "row").rows() == [
        (1, "column 'x': 'z' is not i64", '{"x": "z", "y": "b"}'),
        (2, "the line has 1 field, not 2", '{"line": "3"}'),
    ]


def test_a_time_beyond_what_nanoseconds_reach_is_rejected(read: Any) -> None:
    text = "2024-01-01T00:00:00,a\n9999-12-31T23:59:59,b\n"
    found = read(text, schema={"x": pl.Datetime("ns"), "y": pl.String}, header=False)
    assert found.values("y") == ["a"]
    assert list(found.reasons) == [1]
