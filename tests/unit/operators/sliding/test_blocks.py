"""Blocks of panes: each window is put together from blocks that have its panes, all of them, each once."""

from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

from springtide.operators.sliding.blocks import Blocks, Range
from springtide.operators.sliding.kernel import PANE, Panes
from springtide.query.types import END_OF_TIME

geometries = some.builds(
    lambda every, more: Blocks(Panes(1, every + more, every)), some.integers(1, 9), some.integers(8, 70)
)


def within(start: int, ranges: list[Range]) -> bool:
    return any(low <= start < high for low, high in ranges)


def all_blocks(blocks: Blocks, low: int, high: int) -> list[tuple[int, int]]:
    """Every block, as level and beginning, that begins between two panes."""
    levels = (0, *blocks.levels)
    return [(level, s) for level in levels for s in range(low >> level << level, high, 1 << level)]


def windows_of(blocks: Blocks, level: int, start: int) -> range:
    first, last = blocks.windows(level)
    found = pl.DataFrame({PANE: [start]}).select(first.alias("first"), last.alias("last")).row(0)
    return range(found[0], found[1] + 1)


@given(geometries, some.integers(-5, 5))
def test_the_parts_of_a_window_are_its_panes_each_once(blocks: Blocks, window: int) -> None:
    panes = blocks.panes
    parts = [(level, start) for level, starts in blocks.parts(window).items() for start in starts]
    covered = [p for level, start in parts for p in range(start, start + (1 << level))]
    assert sorted(covered) == list(range(window * panes.every, window * panes.every + panes.size))
    assert all(start % (1 << level) == 0 for level, start in parts)
    assert len(parts) <= 2 * panes.size.bit_length()


@given(geometries, some.integers(-3, 3))
def test_a_block_knows_the_windows_that_it_is_a_part_of(blocks: Blocks, window: int) -> None:
    start = window * blocks.panes.every
    near = all_blocks(blocks, start - 8, start + blocks.panes.size + 8)
    parts = {(level, s) for level, starts in blocks.parts(window).items() for s in starts}
    assert {(level, s) for level, s in near if window in windows_of(blocks, level, s)} == parts


@given(geometries, some.integers(-9, 9), some.integers(1, 12))
def test_what_is_read_has_all_parts(blocks: Blocks, closed: int, more: int) -> None:
    last = closed + more
    for window in range(closed + 1, last + 1):
        for level, starts in blocks.parts(window).items():
            ranges = blocks.needed(level, closed, last)
            assert all(sum(low <= s < high for low, high in ranges) == 1 for s in starts)
            assert all(within(s, blocks.needed(level, None, last)) for s in starts)


@given(geometries, some.integers(-9, 9), some.integers(1, 12), some.integers(1, 12))
def test_each_block_is_merged_once_when_it_is_complete(blocks: Blocks, closed: int, more: int, yet_more: int) -> None:
    """Of all blocks, those that end by the end of the last window that is closed."""
    panes, steps = blocks.panes, [None, closed, closed + more, closed + more + yet_more]
    for level in blocks.levels:
        done: list[int] = []
        for before, upto in itertools.pairwise(steps):
            assert upto is not None
            low, high = blocks.completed(level, before, upto)
            done += range(max(low, -400) >> level << level, high, 1 << level)
        assert len(done) == len(set(done))
        end = (closed + more + yet_more) * panes.every + panes.size
        assert max(done) + (1 << level) <= end < max(done) + (2 << level)


def test_at_the_end_every_block_is_complete() -> None:
    blocks = Blocks(Panes(1, 60, 1))
    assert blocks.levels == range(1, 6)  # the largest block has 32 panes
    assert blocks.completed(3, 7, END_OF_TIME) == (64, END_OF_TIME)


@pytest.mark.parametrize(("size", "most"), [(60, 10), (360, 16)])
def test_a_long_window_has_few_parts(size: int, most: int) -> None:
    blocks = Blocks(Panes(1, size, 1))
    assert max(sum(map(len, blocks.parts(w).values())) for w in range(1000)) <= most
