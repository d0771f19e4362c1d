"""What a predicate over pairs says about both tuples: comparisons between a value of the left tuple and a value of the right one.

    (x - a).abs() <= 10  and  (k == j  or  y < b)          x, k, y of the left, a, j, b of the right tuple

                 All
       ┌──────────┼─────────┐
    x - a - 10 ≤ 0          Any
      a - x - 10 ≤ 0      ┌──┴───┐
                        k = j   y - b ≤ 0

The tree may say less than the predicate, but never more: whenever the predicate is true for a pair, so is the tree. Parts that are not
understood are left out. So a search looks for pairs that satisfy the tree, and then asks the predicate.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any as Node

import polars as pl
from polars.exceptions import PanicException, PolarsError

from springtide.operators.theta.numeric_types import (
    comparable,
    hashable,
    limit_of_sums,
    slack_of_sums,
    slack_of_values,
    summable,
)
from springtide.query.types import TS


@dataclass(frozen=True)
class Term:
    """One part of a sum: an expression over one side, given by its number in `Conditions`, possibly negated."""

    sign: int
    number: int


@dataclass(frozen=True)
class AtMost:
    """A sum over both tuples that is at most 0."""

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    slack: float
    """How far rounding may have moved the sum, relative to its parts."""
    limit: float
    """If the parts of one side exceed this, the sum may have overflowed, and the condition says nothing."""


@dataclass(frozen=True)
class Same:
    """A value of the left tuple that equals one of the right tuple."""

    left: int
    right: int


@dataclass(frozen=True)
class Own:
    """A truth value that depends on one of the tuples only."""

    side: int
    number: int


@dataclass(frozen=True)
class All:
    """Several conditions that must all be true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any:
    """Several conditions of which at least one must be true."""

    parts: tuple[Condition, ...]


Condition = AtMost | Same | Own | All | Any


@dataclass
class Conditions:
    """The conditions of a predicate, and the expressions over each side that they refer to."""

    tree: Condition | None = None
    """None if nothing was understood."""
    exprs: tuple[list[pl.Expr], list[pl.Expr]] = field(default_factory=lambda: ([], []))
    types: tuple[list[pl.DataType], list[pl.DataType]] = field(default_factory=lambda: ([], []))


def conditions_of(predicate: pl.Expr, left: pl.Schema, right: pl.Schema) -> Conditions:
    """Find the conditions of a predicate; `left` and `right` are the columns of the sides, under their names in a pair.

    >>> found = conditions_of(pl.col("x") <= pl.col("a"), pl.Schema({"x": pl.Int64()}), pl.Schema({"a": pl.Int64()}))
    >>> found.tree
    AtMost(left=(Term(sign=1, number=0),), right=(Term(sign=-1, number=0),), slack=0.0, limit=inf)
    """
    reader = _Reader(left, right)
    try:
        reader.found.tree = reader.condition(json.loads(predicate.meta.serialize(format="json")), True)
    except (PolarsError, PanicException, KeyError, TypeError, ValueError, IndexError):  # an unfamiliar kind of JSON
        return Conditions()
    return reader.found


_TURNED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq", "Eq": "Eq", "NotEq": "NotEq"}
_DENIED = {"Lt": "GtEq", "LtEq": "Gt", "Gt": "LtEq", "GtEq": "Lt", "Eq": "NotEq", "NotEq": "Eq"}
_AND, _OR = ("And", "LogicalAnd", "AllHorizontal"), ("Or", "LogicalOr", "AnyHorizontal")
_CONSTANT, _BOTH = -1, 2
Sum = list[tuple[int, Node]]
"""Signs and expressions, each of them over one side or constant."""


class _Unclear(ValueError):
    """A part of the predicate that is left out."""


class _Reader:
    """Reads the JSON form of a Polars expression."""

    def __init__(self, left: pl.Schema, right: pl.Schema) -> None:
        self.found = Conditions()
        self._frames = tuple(
            pl.DataFrame(schema={n: t for n, t in schema.items() if n != TS}) for schema in (left, right)
        )
        self._known: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def condition(self, node: Node, wanted: bool) -> Condition | None:
        """Read a truth value that has to be true (or false, if not `wanted`); return None if it can be anything."""
        try:
            return self._condition(_bare(node), wanted)
        except _Unclear:
            return None

    def _condition(self, node: Node, wanted: bool) -> Condition | None:
        side = self._side(node)
        if side in (0, 1):
            own = _expr(node) if wanted else ~_expr(node)
            return Own(side, self._number(side, own))
        name, inputs = _call(node)
        if name in _AND or name in _OR:
            parts = [self.condition(i, wanted) for i in inputs]
            return _all(parts) if (name in _AND) == wanted else _any(parts)
        if name == "Not":
            return self.condition(inputs[0], not wanted)
        if name == "IsBetween":
            value, low, high = inputs
            parts = [self._compared("GtEq", value, low, wanted), self._compared("LtEq", value, high, wanted)]
            return _all(parts) if wanted else _any(parts)
        if name in _TURNED:
            return self._compared(name, inputs[0], inputs[1], wanted)
        return None

    def _compared(self, operator: str, left: Node, right: Node, wanted: bool) -> Condition | None:
        """Read a comparison. Whether it includes equality makes no difference here."""
        operator = operator if wanted else _DENIED[operator]
        left, right = _bare(left), _bare(right)
        try:
            if self._is_distance(right):
                left, operator, right = right, _TURNED[operator], left
            if self._is_distance(left):
                return self._distance(operator, _call(left)[1][0], right)
            one, other = self._sum(left, 1), self._sum(right, -1)
            plain = len(one) == len(other) == 1
            if operator == "Eq" and plain and (same := self._same(left, right)):
                return same
            return self._at_most(operator, [*one, *other], plain)
        except _Unclear:
            return None

    def _distance(self, operator: str, inner: Node, limit: Node) -> Condition | None:
        """Read |inner| ≤ limit as -limit ≤ inner ≤ limit, and |inner| ≥ limit as its opposite."""
        limits = self._sum(limit, -1)
        parts = [[*self._sum(inner, sign), *limits] for sign in (1, -1)]
        if operator in ("Lt", "LtEq", "Eq"):
            return _all([self._at_most("LtEq", part, False) for part in parts])
        if operator in ("Gt", "GtEq"):
            return _any([self._at_most("GtEq", part, False) for part in parts])
        return None

    def _at_most(self, operator: str, terms: Sum, plain: bool) -> Condition | None:
        if operator == "NotEq":
            return None
        if operator == "Eq":
            return _all([self._at_most("LtEq", terms, plain), self._at_most("GtEq", terms, plain)])
        turn = 1 if operator in ("Lt", "LtEq") else -1
        sides: tuple[list[Term], list[Term]] = ([], [])
        types: list[pl.DataType] = []
        for sign, node in terms:
            side = max(self._side(node), 0)  # a constant counts as left
            sides[side].append(Term(turn * sign, self._number(side, _expr(node))))
            types.append(self.found.types[side][sides[side][-1].number])
        if not sides[0] or not sides[1] or not (comparable(types) if plain else summable(types)):
            return None
        if plain:
            return AtMost(tuple(sides[0]), tuple(sides[1]), slack_of_values(types), math.inf)
        own = [t for (_, node), t in zip(terms, types, strict=True) if self._side(node) != _CONSTANT]
        return AtMost(tuple(sides[0]), tuple(sides[1]), slack_of_sums(types), limit_of_sums(own))

    def _same(self, one: Node, other: Node) -> Same | None:
        if self._side(one) == 1:
            one, other = other, one
        if (self._side(one), self._side(other)) != (0, 1):
            return None
        left, right = self._number(0, _expr(one)), self._number(1, _expr(other))
        a, b = self.found.types[0][left], self.found.types[1][right]
        return Same(left, right) if a == b and hashable(a) else None

    def _sum(self, node: Node, sign: int) -> Sum:
        """Split a sum into parts, as long as a part reads columns of both sides."""
        node = _bare(node)
        if self._side(node) != _BOTH:
            return [(sign, node)]
        name, inputs = _call(node)
        if name in ("Plus", "Minus"):
            return [*self._sum(inputs[0], sign), *self._sum(inputs[1], sign if name == "Plus" else -sign)]
        if name == "Negate":
            return self._sum(inputs[0], -sign)
        raise _Unclear

    def _is_distance(self, node: Node) -> bool:
        return self._side(node) == _BOTH and _call(node)[0] == "Abs"

    def _side(self, node: Node) -> int:
        """Return whose columns an expression reads; a pair's time depends on both sides."""
        names = set(_expr(node).meta.root_names())
        if not names:
            return _CONSTANT
        return next((side for side in (0, 1) if names <= set(self._frames[side].columns)), _BOTH)

    def _number(self, side: int, expr: pl.Expr) -> int:
        """Return the number of an expression; equal expressions have the same number."""
        text = str(expr.meta.serialize(format="json"))
        if text not in self._known[side]:
            ((_, dtype),) = self._frames[side].select(expr.alias("value")).schema.items()
            self._known[side][text] = len(self.found.exprs[side])
            self.found.exprs[side].append(expr)
            self.found.types[side].append(dtype)
        return self._known[side][text]


def _call(node: Node) -> tuple[str, Sequence[Node]]:
    """Return the name and the inputs of an operator or a function; an empty name for anything else."""
    if not isinstance(node, dict):
        return "", ()
    if "BinaryExpr" in node:
        binary = node["BinaryExpr"]
        return str(binary["op"]), (binary["left"], binary["right"])
    if "Function" in node:
        function = node["Function"]["function"]
        while isinstance(function, dict) and len(function) == 1 and next(iter(function)) == "Boolean":
            function = function["Boolean"]
        return str(function if isinstance(function, str) else next(iter(function))), node["Function"]["input"]
    return "", ()


def _bare(node: Node) -> Node:
    while isinstance(node, dict) and "Alias" in node:
        node = node["Alias"][0]
    return node


def _expr(node: Node) -> pl.Expr:
    return pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")


def _all(parts: Iterable[Condition | None]) -> Condition | None:
    """Join conditions that must all be true; a condition that can be anything says nothing."""
    known = [p for part in parts if part is not None for p in (part.parts if isinstance(part, All) else (part,))]
    return known[0] if len(known) == 1 else All(tuple(known)) if known else None


def _any(parts: Iterable[Condition | None]) -> Condition | None:
    """Join alternatives; if one of them can be anything, so can all of them together."""
    found = list(parts)
    known = [p for part in found if part is not None for p in (part.parts if isinstance(part, Any) else (part,))]
    if any(part is None for part in found) or not known:
        return None
    return known[0] if len(known) == 1 else Any(tuple(known))
