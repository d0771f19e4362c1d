"""Tiles find the pairs that comparing every row with every row finds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from springtide.operators.theta import tiles
from springtide.operators.theta.comparisons import AllOf, AnyOf, Compare, Tree, fold, within_reach
from springtide.operators.theta.tiles import PairsOfRows, blocks, density, search

NAN, INF = float("nan"), float("inf")


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def brute(tree: Tree, left: int, right: int) -> list[tuple[int, int]]:
    i, j = np.divmod(np.arange(left * right), right)
    held = fold(tree, lambda c: c.hold(i, j))
    return sorted(zip(i[held].tolist(), j[held].tolist(), strict=True))


def listed(found: Iterable[PairsOfRows]) -> list[tuple[int, int]]:
    return sorted(pair for i, j in found for pair in zip(i.tolist(), j.tolist(), strict=True))


def some(rng: np.random.Generator, size: int, spread: float) -> np.ndarray:
    values = rng.uniform(-spread, spread, size).astype(np.float32).round(1)
    values[rng.random(size) < 0.05] = rng.choice([np.nan, np.inf, -np.inf])
    return values


def at_random(rng: np.random.Generator, left: int, right: int, depth: int = 2) -> Tree:
    if depth == 0 or rng.random() < 0.3:
        spread = rng.choice([1, 30])
        kind = rng.integers(3)
        if kind == 0:
            return Compare(some(rng, left, spread), some(rng, right, spread))
        if kind == 1:
            return Compare(np.floor(some(rng, left, 10)), np.floor(some(rng, right, 10)), same=True)
        a, b, width = some(rng, left, spread), some(rng, right, spread), np.float32(rng.choice([0.1, 1]))
        return AllOf((Compare(a - width, b), Compare(-(a + width), -b)))
    parts = tuple(at_random(rng, left, right, depth - 1) for _ in range(rng.integers(1, 4)))
    return AllOf(parts) if rng.random() < 0.5 else AnyOf(parts)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles so small that few rows make many."""
    sizes = {"LEFT_TILE": 3, "RIGHT_TILE": 5, "BAND_TILE": 4, "CELLS": 64, "FEW": 2, "_WAITING": 7, "_RARE": 3}
    for name, value in sizes.items():
        monkeypatch.setattr(tiles, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(150))
def test_all_pairs_are_found_each_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (int(n) for n in rng.integers(1, 40, 2))
    tree = at_random(rng, left, right)
    wanted = brute(tree, left, right)
    assert listed(search(tree, left, right)) == wanted
    covered = [(i, j) for a, b in blocks(tree, left, right) for i in a.tolist() for j in b.tolist()]
    assert len(covered) == len(set(covered))
    assert set(wanted) <= set(covered)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(60))
def test_the_tiles_of_a_band_stand_side_by_side(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (int(n) for n in rng.integers(20, 60, 2))
    a, b = (rng.uniform(-30, 30, n).astype(np.float32).round(int(rng.integers(2))) for n in (left, right))
    a[rng.random(left) < 0.1] = NAN
    width = np.float32(rng.choice([0, 1, 5]))
    tree = AllOf((Compare(a - width, b), Compare(-(a + width), -b), at_random(rng, left, right, 1)))
    assert listed(search(tree, left, right)) == brute(tree, left, right)


def test_what_is_a_band() -> None:
    a, b = floats(1, 5, 3), floats(4, 2, 9)
    low, high, key = Compare(a - 1, b), Compare(-(a + 1), -b), Compare(a, b, same=True)
    whole = AllOf((low, high, key))
    assert tiles._band(tiles._Pass(whole, whole, low)) == (low, high)
    assert tiles._band(tiles._Pass(whole, whole, key)) is None, "sorted by something else"
    either = AllOf((low, AnyOf((high, key))))
    assert tiles._band(tiles._Pass(either, either, low)) is None, "the other end need not hold"
    gaps = AllOf((low, Compare(-(a + 1), floats(-4, NAN, -9))))
    assert tiles._band(tiles._Pass(gaps, gaps, low)) is None, "rows without a value have no place in the order"


@pytest.mark.parametrize("sizes", [(300, 2000), (97, 97), (1, 5000), (500, 3)])
def test_so_are_those_of_tiles_of_the_usual_size(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        tree = at_random(rng, *sizes)
        assert listed(search(tree, *sizes)) == brute(tree, *sizes)


def test_rows_out_of_reach_and_comparisons_that_always_hold_are_left_out() -> None:
    certain = Compare(floats(1, 2, 9), floats(9, 9, 9))
    near = Compare(floats(1, 5, 99), floats(0, 2, 7))
    tree, i, j = within_reach(AllOf((certain, near)), 3, 3)
    assert (i.tolist(), j.tolist()) == ([0, 1], [1, 2])
    assert isinstance(tree, Compare)
    assert (tree.left.tolist(), tree.right.tolist()) == ([1, 5], [2, 7])
    assert within_reach(certain, 3, 3)[0] is None


def test_nan_is_in_no_pair_and_infinity_in_many() -> None:
    tree = Compare(floats(NAN, -INF, 1), floats(INF, NAN, 0))
    assert listed(search(tree, 3, 3)) == [(1, 0), (1, 2), (2, 0)]
    assert listed(search(Compare(floats(NAN), floats(NAN), same=True), 1, 1)) == []


def test_alternatives_without_anything_in_common_get_a_pass_each() -> None:
    rng = np.random.default_rng(2)
    keys = [rng.integers(0, 500, 1000).astype(np.float32) for _ in range(4)]
    one, other = Compare(keys[0], keys[1], same=True), Compare(keys[2], keys[3], same=True)
    passes = tiles._passes(AnyOf((one, other)), 1000, 1000)
    assert [p.by for p in passes] == [one, other]
    assert listed(search(AnyOf((one, other)), 1000, 1000)) == brute(AnyOf((one, other)), 1000, 1000)


def test_what_rules_out_most_is_sorted_by() -> None:
    rng = np.random.default_rng(3)
    a, b, c, d = (rng.uniform(0, 1000, 1000).astype(np.float32) for _ in range(4))
    narrow, wide = np.float32(2), np.float32(300)
    tree = AllOf((Compare(a - wide, b), Compare(-(a + wide), -b), near := Compare(c - narrow, d), Compare(-c - 2, -d)))
    (only,) = tiles._passes(tree, 1000, 1000)
    assert only.by is near or only.by is tree.parts[3]
    assert only.left_over < 0.05


def test_no_rows_no_pairs() -> None:
    nothing = floats()
    assert listed(search(Compare(nothing, floats(1)), 0, 1)) == []
    assert list(blocks(None, 0, 5)) == []
    assert density(Compare(nothing, floats(1)), 0, 1) == 0.0


def test_density() -> None:
    ramp = np.arange(1000, dtype=np.float32)
    assert density(Compare(ramp, ramp), 1000, 1000) == pytest.approx(0.5, abs=0.01)
