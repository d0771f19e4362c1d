"""Expressions as a person would write them."""

from __future__ import annotations

import re

import polars as pl

_NOISE = (("dyn int: ", ""), ("dyn float: ", ""), ("strict_cast", "cast"))
_PAIRS = {"(": ")", "[": "]"}


def expr_text(expr: pl.Expr) -> str:
    """Return an expression as Polars writes it, without the noise.

    >>> expr_text((pl.col("a") + 1).alias("b"))
    'b = a + 1'
    >>> expr_text((pl.col("x") > 1) & (pl.col("y") == "z"))
    '(x > 1) & (y == "z")'
    >>> expr_text((pl.col("end") - pl.col("start")).dt.total_seconds())
    '(end - start).dt.total_seconds()'
    >>> expr_text(pl.when(pl.col("x") > 1).then(pl.col("y")).otherwise(0))
    'when(x > 1).then(y).otherwise(0)'
    """
    bare = expr.meta.undo_aliases()
    text = " ".join(str(bare).split())
    for noise, plain in _NOISE:
        text = text.replace(noise, plain)
    text = _unwrap(_plain(re.sub(r'col\("([^"]*)"\)', r"\1", text))).removeprefix(".")
    name = expr.meta.output_name(raise_if_undetermined=False)
    return text if name is None or name == text or str(expr) == str(bare) else f"{name} = {text}"


def _plain(text: str) -> str:
    """Turn Polars' `[(a) + (b)]` into `(a + b)` and `f([x])` into `f(x)`, at every level."""
    out, at = "", 0
    while at < len(text):
        wrapped = text.startswith("([(", at)
        binary = _binary(text, at + wrapped) if wrapped or text.startswith("[(", at) else None
        if binary is not None and (not wrapped or text.startswith(")", binary[3])):
            left, operator, right, end = binary
            out, at = f"{out}({_plain(left)} {operator} {_plain(right)})", end + wrapped
        elif (
            text.startswith("([", at)
            and not text.startswith("([(", at)
            and text.startswith(")", end := _closing(text, at + 1) + 1)
        ):
            out += f"({_plain(text[at + 2 : end - 1])})"
            at = end + 1
        elif text[at] == '"' and (end := text.find('"', at + 1)) > 0:  # a string stays as it is
            out, at = out + text[at : end + 1], end + 1
        else:
            out, at = out + text[at], at + 1
    return out


def _binary(text: str, at: int) -> tuple[str, str, str, int] | None:
    end = _closing(text, at)
    middle = _closing(text, at + 1)
    operator = re.match(r" (\S+) \(", text[middle + 1 :])
    if operator is None or text[end - 1] != ")":
        return None
    return text[at + 2 : middle], operator[1], text[middle + 1 + operator.end() : end - 1], end + 1


def _closing(text: str, at: int) -> int:
    """Return the position of the bracket that closes the one at `at`, skipping quoted text."""
    depth, quoted, opening, closing = 0, False, text[at], _PAIRS[text[at]]
    for i in range(at, len(text)):
        if text[i] == '"':
            quoted = not quoted
        elif not quoted:
            depth += (text[i] == opening) - (text[i] == closing)
            if depth == 0:
                return i
    return len(text) - 1


def _unwrap(text: str) -> str:
    while text.startswith("(") and _closing(text, 0) == len(text) - 1:
        text = text[1:-1]
    return text
