"""FrameParts are frames like any other, whatever is asked of them and whenever they are cut out."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from springtide.operators.user.frame_parts import FramePart, FrameParts

FRAME = pl.DataFrame(
    {
        "i": [1, None, 3, 4],
        "f": [0.5, float("nan"), None, -0.0],
        "s": ["a", None, "", "ä"],
        "b": [True, None, False, True],
        "y": [b"x", None, b"", b"z"],
        "t": [
            datetime(2024, 1, 1, tzinfo=UTC),
            None,
            datetime(1969, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 2, tzinfo=UTC),
        ],
        "n": [datetime(2024, 1, 1), None, datetime(1969, 1, 1), datetime(2024, 1, 2)],
        "d": [date(2024, 2, 29), None, date(1, 1, 1), date(2024, 3, 1)],
        "c": [time(1, 2), None, time(0), time(23, 59)],
        "p": [timedelta(1), None, timedelta(0), timedelta(microseconds=-1)],
        "m": [Decimal("1.20"), None, Decimal(0), Decimal("-3.45")],
        "l": [[1, None], None, [], [2]],
        "o": [{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}, {"x": 2, "y": None}],
        "a": pl.Series([[1, 2], None, [3, 4], [5, 6]], dtype=pl.Array(pl.Int64, 2)),
        "e": pl.Series(["u", None, "v", "u"], dtype=pl.Enum(["u", "v"])),
    }
)

ASKED: list[Any] = [
    lambda f: f.rows(),
    lambda f: f.rows(named=True),
    lambda f: list(f.iter_rows()),
    lambda f: list(f.iter_rows(named=True)),
    lambda f: f.to_dicts(),
    lambda f: (f.height, len(f), f.width, f.shape, f.columns, f.schema, f.is_empty()),
    lambda f: f["i"].to_list(),
    lambda f: f[0, "s"] if f.height else None,
    lambda f: f[["i", "s"]].rows(),
    lambda f: f.get_column("t").to_list(),
    lambda f: f.select("t", "i").rows(),
    lambda f: f.select(["t", "i"]).rows(),
    lambda f: f.select("t", "i").select("i").rows(),
    lambda f: f.select("t", "i")["t"].to_list(),
    lambda f: f.select("i", "i2"),
    lambda f: f.select("i", "t")["s"],
    lambda f: f["nothing"],
    lambda f: f.select(pl.col("i") * 2).rows(),
    lambda f: f.select("i", j=pl.col("i") + 1).rows(),
    lambda f: f.select("^[is]$").rows(),
    lambda f: f.select().rows(),
    lambda f: f.select("i", "i"),
    lambda f: f.filter(pl.col("i") > 1).rows(),
    lambda f: f.with_columns(z=pl.lit(1)).rows(),
    lambda f: f.group_by("b", maintain_order=True).agg(pl.len()).rows(),
    lambda f: pl.concat([f, f]).rows(),
    lambda f: f.sort("s").rows(),
    lambda f: f.row(0) if f.height else None,
    lambda f: f.lazy().collect().rows(),
    lambda f: copy.deepcopy(f).rows(),
    lambda f: pickle.loads(pickle.dumps(f)).rows(),
    lambda f: str(f),
    lambda f: f.clone().rows(),
]


def told(ask: Any, frame: pl.DataFrame) -> str:
    """What is answered, or what is raised; as text, because NaN is not NaN."""
    try:
        return repr(ask(frame))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


@pytest.mark.parametrize("bounds", [(0, 4), (1, 3), (2, 2), (3, 4)])
@pytest.mark.parametrize("number", range(len(ASKED)))
def test_an_excerpt_answers_as_the_frame_would(number: int, bounds: tuple[int, int]) -> None:
    """Asked at once, and after it was cut out."""
    ask, (start, end) = ASKED[number], bounds
    frame, excerpt = FRAME.slice(start, end - start), FrameParts(FRAME).part(start, end)
    assert isinstance(excerpt, pl.DataFrame)
    expected = told(ask, frame)
    assert told(ask, excerpt) == expected
    assert told(ask, excerpt) == expected
    cut = FrameParts(FRAME).part(start, end)
    assert cut.equals(frame)
    assert told(ask, cut) == expected


def test_columns_are_chosen_and_rows_read_without_cutting_anything_out() -> None:
    excerpt = FrameParts(FRAME).part(0, 2)
    chosen = excerpt.select("i", "t")
    assert chosen.rows() == excerpt.select(["i", "t"]).rows() == FRAME.head(2).select("i", "t").rows()
    assert excerpt["i"].to_list() == [1, None]
    assert isinstance(chosen, FramePart)
    assert not any("_df" in e.__dict__ for e in (excerpt, chosen))


def test_what_comes_of_an_excerpt_is_a_plain_frame() -> None:
    excerpt = FrameParts(FRAME).part(0, 2)
    for made in (excerpt.head(1), excerpt.with_columns(z=1), excerpt.filter(pl.col("i") > 0), excerpt.clone()):
        assert type(made) is pl.DataFrame


def test_an_excerpt_that_is_changed_in_place_is_the_only_one() -> None:
    whole = FrameParts(FRAME.select("i", "s"))
    changed, other = whole.part(1, 3), whole.part(1, 3)
    assert changed.rows() == other.rows()
    changed.insert_column(0, pl.Series("z", [7, 8]))
    assert changed.rows() == [(7, None, None), (8, 3, "")]
    assert (changed.height, changed["z"].to_list(), changed.select("z").rows()) == (2, [7, 8], [(7,), (8,)])
    assert other.rows() == [(None, None), (3, "")]
    assert whole.frame.columns == ["i", "s"]


def test_other_attributes_are_missing_as_they_are_in_frames() -> None:
    with pytest.raises(AttributeError, match="'FramePart' object has no attribute 'colour'"):
        FrameParts(FRAME).part(0, 1).colour  # type: ignore[attr-defined] # noqa: B018
