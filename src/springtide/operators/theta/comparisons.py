"""Comparisons between the rows of two sides, combined with "and" and "or". Values are 32-bit floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Compare:
    """Requires a value of the left row to be at most (or equal to) a value of the right row. NaN matches nothing."""

    left: np.ndarray
    right: np.ndarray
    same: bool = False

    def hold(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Compare some left rows with some right rows, pair by pair."""
        left, right = self.left[i], self.right[j]
        held: np.ndarray = left == right if self.same else left <= right
        return held


@dataclass(frozen=True, eq=False)
class AllOf:
    """All of these hold."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, eq=False)
class AnyOf:
    """At least one of these holds."""

    parts: tuple[Tree, ...]


Tree = Compare | AllOf | AnyOf


def fold(tree: Tree, ask: Callable[[Compare], np.ndarray]) -> np.ndarray:
    """Combine the truth values of the comparisons; the arrays that `ask` returns may be modified."""
    if isinstance(tree, Compare):
        return ask(tree)
    result, *others = (fold(part, ask) for part in tree.parts)
    for other in others:
        (np.logical_and if isinstance(tree, AllOf) else np.logical_or)(result, other, out=result)
    return result


def compares_of(tree: Tree) -> list[Compare]:
    """Return all comparisons in a tree."""
    return [tree] if isinstance(tree, Compare) else [c for part in tree.parts for c in compares_of(part)]


def together(tree: Tree) -> tuple[Tree, ...]:
    """Return the parts of a tree that all have to hold."""
    return tree.parts if isinstance(tree, AllOf) else (tree,)


def turned(tree: Tree) -> Tree:
    """Swap left and right."""
    if isinstance(tree, Compare):
        return Compare(tree.right, tree.left, same=True) if tree.same else Compare(-tree.right, -tree.left)
    return type(tree)(tuple(turned(part) for part in tree.parts))


def within_reach(tree: Tree, left: int, right: int) -> tuple[Tree | None, np.ndarray, np.ndarray]:
    """Leave out rows that cannot be in a pair, and comparisons that hold for all remaining rows."""
    if not left or not right:
        return None, np.arange(left), np.arange(right)
    near_left, near_right = np.ones(left, dtype=bool), np.ones(right, dtype=bool)
    for compare in together(tree):
        if isinstance(compare, Compare):
            lowest, highest = np.fmin.reduce(compare.left), np.fmax.reduce(compare.right)
            near_left &= compare.left <= (compare.left if compare.same else highest)  # NaN never is
            near_right &= compare.right >= (compare.right if compare.same else lowest)
    i, j = np.flatnonzero(near_left), np.flatnonzero(near_right)
    if not i.size or not j.size:
        return None, i, j
    parts = together(tree if i.size == left and j.size == right else _taken(tree, i, j))
    rest = tuple(p for p in parts if not (isinstance(p, Compare) and not p.same and p.left.max() <= p.right.min()))
    return (AllOf(rest) if len(rest) > 1 else rest[0] if rest else None), i, j


def _taken(tree: Tree, i: np.ndarray, j: np.ndarray) -> Tree:
    if isinstance(tree, Compare):
        return Compare(tree.left[i], tree.right[j], tree.same)
    return type(tree)(tuple(_taken(part, i, j) for part in tree.parts))
