"""Expressions over several columns at once (`pl.all()`, selectors, `.struct.unnest()`), spelled out one by one.

The expressions that a step keeps name every column they read, so the compiler sees which columns are needed, and columns that the
engine adds to its frames are never mistaken for the user's. Polars spells expressions out only inside its plans, so it is done
here on the expression's JSON, and the result is compared with what Polars says about the original.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import polars as pl
from polars.exceptions import DuplicateError, PolarsError

from springtide.query.errors import QueryError, brief

Node = Any
"""A piece of an expression's JSON."""


def spell_out(step: str, schema: pl.Schema, exprs: Iterable[pl.Expr]) -> tuple[pl.Expr, ...]:
    """Return the expressions, with each one that has several outputs replaced by one expression per output.

    >>> spelled = spell_out("", pl.Schema({"a": pl.Int64(), "b": pl.Int64(), "s": pl.String()}), [pl.col(pl.Int64) + 1])
    >>> [str(e) for e in spelled]
    ['[(col("a")) + (dyn int: 1)]', '[(col("b")) + (dyn int: 1)]']
    """
    return tuple(one for expr in exprs for one in _spell_out(step, schema, expr))


def _spell_out(step: str, schema: pl.Schema, expr: pl.Expr) -> list[pl.Expr]:
    if not expr.meta.has_multiple_outputs():
        return [expr]
    frame = pl.LazyFrame(schema=schema)
    try:
        wanted = frame.select(expr).collect_schema()
    except DuplicateError:
        problem = f"{brief(expr)} stands for several columns that would have the same name"
        raise QueryError(
            step, problem, "give them other names with .name.suffix('_x'), or write them one by one"
        ) from None
    except PolarsError:
        return [expr]  # the code that resolves it reports what is wrong
    try:
        spelled = [_expr(node) for node in _each(frame, json.loads(expr.meta.serialize(format="json")))]
        if frame.select(spelled).collect_schema() == wanted and not any(e.meta.has_multiple_outputs() for e in spelled):
            return spelled
    except (PolarsError, KeyError, TypeError, ValueError):  # JSON of a form that is not known here
        pass
    raise QueryError(
        step, f"{brief(expr)} stands for several columns", "write it once for each column, with the column's name"
    )


def _each(frame: pl.LazyFrame, node: Node) -> list[Node]:
    """Return the expressions that an expression with selectors stands for."""
    if isinstance(node, dict) and "Selector" in node:
        return [{"Column": name} for name in frame.select(_expr(node)).collect_schema()]
    if isinstance(node, dict) and "Function" in node:
        call = node["Function"]
        if (fields := _fields(frame, node)) is not None:
            return [
                {"Function": {**call, "input": [i], "function": f}}
                for i in _each(frame, call["input"][0])
                for f in fields
            ]
        if _takes_any_number(call["function"]):
            return [{"Function": {**call, "input": [one for i in call["input"] for one in _each(frame, i)]}}]
    if isinstance(node, dict):
        return _side_by_side(dict, list(node), [_each(frame, part) for part in node.values()])
    if isinstance(node, list):
        return _side_by_side(
            lambda pairs: [part for _, part in pairs], range(len(node)), [_each(frame, p) for p in node]
        )
    return [node]


def _side_by_side(make: Any, keys: Any, parts: list[list[Node]]) -> list[Node]:
    """Build one result from the first of each part, one from the second of each, and so on; a part with a single value goes into all."""
    many = {len(part) for part in parts} - {1}
    if len(many) > 1:
        raise ValueError("selectors of different lengths")
    count = many.pop() if many else 1
    return [
        make(list(zip(keys, (part[0 if len(part) == 1 else i] for part in parts), strict=True))) for i in range(count)
    ]


def _fields(frame: pl.LazyFrame, node: Node) -> list[Node] | None:
    """Return the functions that take one field each, if this one takes several fields of a struct."""
    if _name(node["Function"]["function"]) != "SelectFields":
        return None
    return [{"StructExpr": {"FieldByName": name}} for name in frame.select(_expr(node)).collect_schema()]


def _takes_any_number(function: Node) -> bool:
    """Return whether several columns go into one call, as in `pl.sum_horizontal(pl.all())`."""
    name = _name(function)
    return name.endswith("Horizontal") or name in ("AsStruct", "Coalesce", "Concat", "Format")


def _name(function: Node) -> str:
    """Return `Name` for `Name`, `{Name: …}` and `{GroupExpr: {Name: …}}`."""
    if isinstance(function, str):
        return function
    ((name, inner),) = function.items()
    return _name(inner) if name.endswith("Expr") or name == "Boolean" else str(name)


def _expr(node: Node) -> pl.Expr:
    return pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")
