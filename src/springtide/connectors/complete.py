"""Checks, when a query is built, that a connector's class has every method that the engine will call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache


def lacking(cls: type, base: type, either: Mapping[str, str]) -> str | None:
    """Return what a class lacks of its base: a method of `either` pair, or parameters with which a method is called."""
    return _lacking(cls, base, tuple(sorted(either.items())))


@lru_cache(maxsize=1000)
def _lacking(cls: type, base: type, either: tuple[tuple[str, str], ...]) -> str | None:
    for one, other in either:
        if getattr(cls, one) is getattr(base, one) and getattr(cls, other) is getattr(base, other):
            return f"its class {cls.__name__} defines neither {one} nor {other}"
    for name, method in inspect.getmembers(base, inspect.isfunction):
        own = inspect.getattr_static(cls, name)
        if name.startswith("_") or own is method or not inspect.isfunction(own):
            continue
        wanted = list(inspect.signature(method).parameters)
        try:
            inspect.signature(own).bind(*wanted)
        except TypeError:
            return f"{cls.__name__}.{name} cannot be called with ({', '.join(wanted[1:])})"
    return None
