"""Newline-delimited JSON: every line is a row at its position, accepted or rejected with a reason."""

from __future__ import annotations

import json
import math
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.sources import json_objects
from springtide.values.row_checks import Misfit, frame_of_row
from tests.unit.sources.conftest import Drain, Everything
from tests.wording import says

XY = {"x": pl.Int64, "y": pl.String}
Read = Any


@pytest.fixture
def read(tmp_path: Path, drain: Drain) -> Read:
    """`read(text, **options)` reads one file of this text; a list is lines, of which other values are written as JSON."""

    def run(text: Any, *, limit: int = 10**9, schema: Any = None) -> Everything:
        if isinstance(text, list):
            text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in text)
        path = tmp_path / "a.jsonl"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return drain(st.json(path, schema=schema or XY), limit)

    return run


def test_rows(read: Read) -> None:
    got = read([{"x": 1, "y": "a"}, {"y": "b", "x": 2}, {"x": 3}, {}, {"x": None, "y": None}])
    assert list(got.rows.values()) == [
        {"x": 1, "y": "a"},
        {"x": 2, "y": "b"},
        {"x": 3, "y": None},
        {"x": None, "y": None},
        {"x": None, "y": None},
    ]
    assert got.reasons == {}


def test_blanks_around_an_object_do_no_harm(read: Read) -> None:
    assert read(' {"x": 1} \n\t{"x": 2}\r\n{"x":3}').values("x") == [1, 2, 3]


def test_a_byte_order_mark(read: Read) -> None:
    assert read('\ufeff{"x": 1}\n').values("x") == [1]


def test_texts_with_everything_in_them(read: Read) -> None:
    texts = ["", "ä", "a\nb", '"', "\\", "\u2028", "\U0001f600", "\ufeff", "\x00", "}{"]
    assert read([{"y": t} for t in texts]).values("y") == texts
    plain = "".join(json.dumps({"y": t}, ensure_ascii=False) + "\n" for t in texts)
    assert read(plain).values("y") == texts


def test_rows_that_do_not_fit_are_rejected_at_their_places_and_shift_no_other(read: Read) -> None:
    lines = [
        '{"x": 1}',
        '{"x": "1"}',
        '{"x": 1.5}',
        "",
        '{"x": 1, "z": 2}',
        "nope",
        '{"x": 1}{"x": 2}',
        "[1, 2]",
        '{"x": 1',
        ', "y": "a"}',
        '{"x": 99999999999999999999}',
        '{"x": 1, "x": 2}',
        '{"x": 7}',
        "{'x': 1}",
        '{"x": 01}',
        '{"y": "\\ud800"}',
        '{"y": 5}',
        '{"y": true}',
        '{"x": true}',
        '{"x": [1]}',
        '{"x": {"a": 1}}',
        '{"yy": 1}',
        '{"x": 1} {"x": 2}',
        '{"x": 9}',
    ]
    got = read(lines)
    assert {p: row["x"] for p, row in got.rows.items()} == {0: 1, 12: 7, 23: 9}
    reasons = got.reasons
    assert reasons[1] == "column 'x': '1' is not i64"
    assert reasons[2] == "column 'x': 1.5 is not i64"
    assert reasons[3] == "the line is empty"
    assert reasons[4] == "there is no column 'z'; there are: x, y"
    assert reasons[5] == "the line is not JSON: Expecting value at character 1"
    assert reasons[6] == "the line is not JSON: Extra data at character 9"
    assert reasons[7] == "[1, 2] is not a row of named columns"
    assert reasons[8] == "the line is not JSON: Expecting ',' delimiter at character 8"
    assert reasons[10] == "column 'x': 99999999999999999999 is out of range for i64"
    assert reasons[11] == "the line has 'x' twice"
    assert says(reasons[15], "not JSON", "half of a surrogate pair")
    assert reasons[17] == "column 'y': True is not str"
    assert reasons[18] == "column 'x': True is not i64"
    assert reasons[21] == "there is no column 'yy'; did you mean 'y'?"
    assert sorted(reasons) == sorted(set(range(24)) - {0, 12, 23})
    assert got.rejected[1] == {"x": "1"}
    assert got.rejected[5] == {"line": "nope"}
    assert got.rejected[7] == {"line": "[1, 2]"}


def test_a_line_that_is_not_utf8(read: Read) -> None:
    got = read(b'{"y": "a"}\n{"y": "\xff"}\n{"y": "c"}\n')
    assert got.values("y") == ["a", "c"]
    assert got.reasons == {1: "the line is not UTF-8"}
    assert got.rejected[1] == {"y": "\ufffd"}


def test_lines_nested_deeply(read: Read) -> None:
    deep = '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    got = read(f'{{"x": 1}}\n{deep}\n{{"x": 3}}\n')
    assert got.values("x") == [1, 3]
    assert list(got.reasons) == [1]
    assert says(got.reasons[1], "not JSON", "nested too deeply")


def test_a_file_without_lines(read: Read) -> None:
    assert read("").rows == {}


# ── types ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
TYPES: list[tuple[Any, list[tuple[str, Any]], list[str]]] = [
    (pl.Int64, [("5", 5), ("-0", 0), ("null", None)], ["5.0", "1e2", '"5"', "true", "[]"]),
    (pl.Int8, [("-128", -128)], ["128"]),
    (pl.UInt64, [(str(2**64 - 1), 2**64 - 1)], ["-1", str(2**64)]),
    (pl.Float64, [("1.5", 1.5), ("2", 2.0), ("1e3", 1000.0)], ['"1.5"', "true"]),
    (pl.Float32, [("0.5", 0.5), ("2", 2.0)], ['"0.5"']),
    (pl.Boolean, [("true", True), ("null", None)], ["0", '"true"']),
    (pl.String, [('"a"', "a"), ("null", None)], ["5", "false", "{}"]),
    (pl.Date, [('"2024-02-29"', date(2024, 2, 29))], ['"2023-02-29"', "5", "{}"]),
    (st.TIME, [('"2024-02-29T13:00:00+01:00"', NOON), ("null", None)], ['"noon"', "1709208000", "true"]),
    (pl.Datetime("ms"), [('"2024-02-29T12:00:00"', datetime(2024, 2, 29, 12))], ['"noon"']),
    (pl.Decimal(6, 2), [("1.25", Decimal("1.25")), ('"1.5"', Decimal("1.5"))], ["1.255", '"x"', "true", "99999"]),
    (pl.Enum(["a"]), [('"a"', "a")], ['"b"', "1"]),
    (pl.List(pl.Int64), [("[1, null]", [1, None]), ("[]", []), ("null", None)], ["[1.5]", '["a"]', "1", "{}", "[[1]]"]),
    (
        pl.Struct({"a": pl.Int64, "b": pl.List(pl.String)}),
        [('{"a": 1, "b": ["x"]}', {"a": 1, "b": ["x"]}), ('{"a": 1}', {"a": 1, "b": None})],
        ['{"a": "1"}', '{"c": 1}', "[1]", '{"b": "x"}'],
    ),
]


@pytest.mark.parametrize(("dtype", "good", "bad"), TYPES, ids=[str(t[0]) for t in TYPES])
def test_every_type(read: Read, dtype: Any, good: list[tuple[str, Any]], bad: list[str]) -> None:
    texts = [text for text, _ in good]
    lines = [f'{{"v": {text}}}' for text in [*texts, *bad, *texts]]
    got = read(lines, schema={"v": dtype})
    assert got.values("v") == [value for _, value in good] * 2
    assert list(got.reasons) == list(range(len(good), len(good) + len(bad)))
    assert all(reason.startswith("column 'v': ") for reason in got.reasons.values())


@pytest.mark.parametrize(
    "dtype",
    [pl.Binary, pl.Duration("us"), pl.List(st.TIME), pl.Struct({}), pl.Array(pl.Int64, 2), pl.Object, pl.Int128],
)
def test_types_that_cannot_be_read(dtype: Any) -> None:
    with pytest.raises(st.QueryError, match=r"\(json\): 'v' is .*; declare it as pl.String"):
        st.json("a.json", schema={"v": dtype})


# ── cuts, and many that are wrong ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "line",
    [
        '{"x": 1, "x": 1}',
        '{"o": {"a": 1, "a": 1}}',
        '{"y": "\\ud800"}',
        '{"y": "\\udc00x"}',
        '{"o": {"s": "\\ud83d"}}',
        '{"y": "a\tb"}',
        '{"y": "a\x00b"}',
        '{"x": 1,}',
        '{"x": .5}',
        '{"x": +1}',
        '{"x": -}',
        "{x: 1}",
        '{"x": 1}//',
        '{"x": 1e}',
        '{"y": "\\x"}',
        '{"x": undefined}',
        '{"x": 128}',
        '{"f": "1"}',
        '{"o": []}',
        '{"o": {"a": 1.5}}',
    ],
)
def test_what_is_wrong_in_company_is_wrong_alone(read: Read, line: str) -> None:
    """Two parsers look at wrong lines; whether a line is wrong must not depend on which of them saw it first."""
    schema = {"x": pl.Int8, "y": pl.String, "f": pl.Float64, "o": pl.Struct({"a": pl.Int64, "s": pl.String})}
    reader = json_objects.ObjectReader(pl.Schema(schema))
    with pytest.raises(pa.ArrowInvalid, match=r".+"):
        reader._parse(line.encode(), 1)
    assert reader.fault(line) is not None
    alone, among = read([line], schema=schema), read(['{"x": 1}', line, '{"x": "1"}', '{"x": 2}'], schema=schema)
    assert alone.reasons[0] == among.reasons[1]
    assert among.values("x") == [1, 2]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (f'{{"f": {"9" * 5_000}}}', math.inf),
        (f'{{"f": -{"9" * 5_000}}}', -math.inf),
        (f'{{"l": [{"9" * 400}]}}', [math.inf]),
        (f'{{"o": {{"a": {"9" * 39}}}}}', {"a": math.inf}),
        ('{"m": 999999999999999999.99}', Decimal("999999999999999999.99")),
        ('{"m": "999999999999999999.99"}', Decimal("999999999999999999.99")),
    ],
)
def test_what_is_read_alone_is_read_in_company(read: Read, line: str, value: Any) -> None:
    """A number that one parser finds too long, or rounds, is one that the other reads."""
    schema = {"x": pl.Int8, "f": pl.Float64, "l": pl.List(pl.Float64), "m": pl.Decimal(20, 2)}
    schema |= {"o": pl.Struct({"a": pl.Float32})}
    alone, among = read([line], schema=schema), read([line, '{"x": "1"}'], schema=schema)
    assert not alone.reasons
    assert list(among.reasons) == [1]
    name = line[2]
    assert alone.values(name) == among.values(name) == [value]


@pytest.mark.parametrize("number", ["9" * 38, "-" + "9" * 38, "9" * 37, "9" * 60, "9" * 80, "1e37", "1e999999999999"])
def test_a_decimal_that_does_not_fit_is_rejected_whatever_its_last_bits_are(read: Read, number: str) -> None:
    schema = {"x": pl.Int8, "m": pl.Decimal(38, 2)}
    line = f'{{"m": {number}}}'
    alone, among = read([line], schema=schema), read([line, '{"x": "1"}', '{"x": 1}'], schema=schema)
    assert alone.reasons[0] == among.reasons[0]
    assert not alone.rows


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_any_cut_gives_the_same(read: Read, limit: int) -> None:
    lines = ['{"x": "no"}' if i % 5 == 0 else {"x": i, "y": "a" * i} for i in range(40)]
    whole, cut = read(lines), read(lines, limit=limit)
    assert (cut.rows, cut.reasons, cut.rejected) == (whole.rows, whole.reasons, whole.rejected)


@pytest.mark.parametrize("blocks", [(1, 1), (8, 2), (30, 30), (4096, 64)])
@pytest.mark.parametrize("wrong", ['{"x": "no"}', '{"x": 1.5}', '{"x": 1, "x": 2}', "{", '{"q": 1}'])
def test_many_wrong_lines(read: Read, monkeypatch: pytest.MonkeyPatch, wrong: str, blocks: tuple[int, int]) -> None:
    monkeypatch.setattr(json_objects, "_BLOCKS", blocks)
    lines = [wrong if i % 3 else {"x": i} for i in range(120)]
    got = read(lines)
    assert got.values("x") == list(range(0, 120, 3))
    assert list(got.rows) == list(range(0, 120, 3))
    assert len(got.reasons) == 80
    assert len(set(got.reasons.values())) == 1


def test_lines_that_are_all_wrong(read: Read) -> None:
    got = read(['{"x": 1.5}'] * 5000)
    assert got.rows == {}
    assert len(got.reasons) == 5000


VALUES: Any = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-300, 300)
    | some.sampled_from([0.5, 2.0, 1e300])
    | some.text(max_size=3),
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(some.sampled_from("ab"), inner, max_size=2),
    max_leaves=3,
)
SCHEMA = pl.Schema(
    {
        "i": pl.Int8(),
        "f": pl.Float64(),
        "s": pl.String(),
        "b": pl.Boolean(),
        "l": pl.List(pl.Int64()),
        "o": pl.Struct({"a": pl.Int64()}),
    }
)


@settings(max_examples=150)
@given(some.lists(some.dictionaries(some.sampled_from([*SCHEMA, "other"]), VALUES, max_size=3), max_size=6))
def test_what_fits_is_what_the_reference_says_fits(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        source = st.json(path, schema=SCHEMA)
        (part,) = source.take(None, 100, None).slices or (None,)
        if part is None:
            return
        read = source.read(part)
    expected, reasons = [], {}
    for i, row in enumerate(rows):
        try:
            expected.append(frame_of_row(row, SCHEMA, None).row(0))
        except Misfit as misfit:
            reasons[i] = str(misfit)
    frame = read.rows.collect()
    assert frame.drop("__position").rows() == expected
    assert {r["position"]: r["reason"] for r in read.rejected} == reasons


def test_nan_is_taken_as_python_writes_it(read: Read) -> None:
    (value,) = read('{"x": NaN}', schema={"x": pl.Float64}).values("x")
    assert math.isnan(value)
