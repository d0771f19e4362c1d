"""Refuses calls with missing, unknown or too many arguments, and gives an example of a correct call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from springtide.query.errors import QueryError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Class = TypeVar("Class")


def usage(
    example: str, label: Callable[..., str] | None = None
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Refuse calls that do not fit the function's parameters, with a `QueryError` instead of a `TypeError`.

    `label` takes the first argument and the function's name, and returns what the message calls the step.

    >>> @usage("add(1, to=2)")
    ... def add(number: int, *, to: int) -> int:
    ...     return number + to
    >>> add(1)
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step (add): 'to' is missing; write for example add(1, to=2)
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                where = label(args[0], function.__name__) if label and args else f"({function.__name__})"
                raise QueryError(where, _problem(str(error)), f"write for example {example}") from None
            return function(*args, **kwargs)

        return checked

    return decorate


def usage_of(example: str, where: str) -> Callable[[type[Class]], type[Class]]:
    """Refuse calls of a class that do not fit its parameters, in the same way; `where` is what the message calls it.

    >>> from dataclasses import dataclass
    >>> @usage_of("Point(x=1)", "(point)")
    ... @dataclass
    ... class Point:
    ...     x: int
    >>> Point(y=1)
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step (point): 'x' is missing; write for example Point(x=1)
    """

    def decorate(cls: type[Class]) -> type[Class]:
        cls.__init__ = usage(example, lambda *_: where)(cls.__init__)  # type: ignore[method-assign]
        return cls

    return decorate


def _problem(said: str) -> str:
    """Return what `inspect` says about a call, in our own words."""
    quoted = re.search(r"'(\w+)'", said)
    if quoted is None:
        return "there are too many arguments without a name"
    if said.startswith("missing"):
        return f"{quoted[0]} is missing"
    return f"{quoted[0]} is given twice" if said.startswith("multiple") else f"there is no argument {quoted[0]}"
