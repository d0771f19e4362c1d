"""The picture of a plan is well-formed, has everything in it, and takes nothing for markup."""

from __future__ import annotations

from xml.etree import ElementTree

import polars as pl
import pytest

import springtide as st
from springtide.compiler.picture import svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def sides() -> tuple[st.Stream, st.Stream]:
    columns = {"key": pl.String, "x": pl.Int64, "ts": st.TIME}
    return tuple(st.source(n, st.memory(schema=columns), ts="ts") for n in ("left", "right"))  # type: ignore[return-value]


def test_every_step_and_every_exchange_is_there() -> None:
    left, right = sides()
    joined = left.join(right, on="key", within="1m", name="pairs")
    counts = joined.aggregate(by="key", window=st.tumbling("1h"), n=st.count(), name="counts")
    plan = st.Query("both", counts.to(st.memory_sink(), name="out")).plan()
    shown = texts(svg(plan))
    assert {"left", "right", "pairs", "counts", "out"} <= set(shown)
    arrows = ElementTree.fromstring(svg(plan)).findall(f"{SVG}path")
    assert len(arrows) == len(plan.exchanges) == 3


def test_boxes_do_not_overlap() -> None:
    left, right = sides()
    plan = st.Query("q", left.join(right, on="key", within="1m").to(st.memory_sink())).plan()
    boxes = [
        tuple(int(box.get(name, 0)) for name in ("x", "y", "width", "height"))
        for box in ElementTree.fromstring(svg(plan)).findall(f"{SVG}rect")[1:]
    ]
    assert len(boxes) == len(plan.subqueries)
    for i, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, other_width, other_height in boxes[:i]:
            apart = (
                x >= other_x + other_width
                or other_x >= x + width
                or y >= other_y + other_height
                or other_y >= y + height
            )
            assert apart


@pytest.mark.parametrize("name", ["<script>", 'a"b', "x&y"])
def test_names_are_text(name: str) -> None:
    left, _ = sides()
    picture = st.Query(name, left.filter(pl.col("x") > 1, name=name).to(st.memory_sink()))._repr_svg_()
    assert picture is not None
    assert name in texts(picture)
    assert "<script" not in picture
