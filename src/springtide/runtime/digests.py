"""Digests of a user's code and expressions, a few hex digits each: the same in every process and on every machine, and different when they change.

A function is digested by its source without comments, docstrings and layout, with the values that it closes over and the module's names that
it uses; where there is no source of its own (a lambda, the interactive prompt) by its bytecode, which only the same Python compares. A class is its
methods and values, an object its class and attributes. What comes from a library is its name. `version` on a function, class or
object says it instead of all that.
"""

from __future__ import annotations

import ast
import dis
import enum
import functools
import hashlib
import inspect
import json
import pickle
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from springtide.state.forms import FormPart

_PLAIN: Final = (bool, int, float, complex, str, bytes, Decimal, date, time, timedelta, range, type(None))
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_ARROW: Final = b"\xff\xff\xff\xff"
_LIBRARIES: Final = ("site-packages", "dist-packages")
_DEEP: Final = 20
_SHOWN: Final = 100
"""Characters of an expression that are kept for people."""


def of_code(given: Any) -> FormPart:
    """Digest a user's operator, class or function.

    >>> def double(x):
    ...     return 2 * x
    >>> of_code(double).text
    'double'
    >>> double.version = 3
    >>> of_code(double).digest
    '3'
    """
    name = str(getattr(given, "__qualname__", None) or type(given).__qualname__)
    if (version := getattr(given, "version", None)) is not None:
        return FormPart(name, str(version), "version")
    reader = _Reader()
    digest = _hex(reader.value(given, root=True))
    return FormPart(name, digest, _python() if reader.bytecode else "source")


def of_expression(expr: pl.Expr, text: str) -> FormPart:
    """Digest a whole expression, with the functions that it calls. Only the same version of Polars writes it the same way."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    try:
        node = json.loads(expr.meta.serialize(format="json"))
    except (PolarsError, ValueError, TypeError, AttributeError):  # a function that cannot be pickled
        return FormPart(shown, _hex(str(expr)), f"text, Polars {pl.__version__}")
    reader = _Reader()
    whole = reader.without_pickles(node)
    made = f"Polars {pl.__version__}"
    return FormPart(shown, _hex(whole), f"{made}, {_python()}" if reader.bytecode else made)


class _Reader:
    """Turns a value into plain lists and strings, each object once; notes when only bytecode was available."""

    def __init__(self) -> None:
        self.bytecode = False
        self._met: dict[int, tuple[int, Any]] = {}

    def value(self, given: Any, *, root: bool = False, depth: int = 0) -> Any:
        """Return what a value is, without an address in it."""
        if isinstance(given, enum.Enum):
            return [_name(type(given)), given.name]
        if isinstance(given, _PLAIN):
            return repr(given)
        if id(given) in self._met or depth > _DEEP:
            return ["again", self._met.get(id(given), (0, None))[0]]
        self._met[id(given)] = len(self._met), given  # kept alive: a later object could be given the same address
        if not root and not inspect.ismodule(given) and (version := getattr(given, "version", None)) is not None:
            return [_name(given if inspect.isclass(given) else type(given)), "version", str(version)]
        return self._compound(given, root, depth + 1)

    def _compound(self, given: Any, root: bool, depth: int) -> Any:
        inner = functools.partial(self.value, depth=depth)
        match given:
            case Mapping():
                return ["map", sorted(([inner(k), inner(v)] for k, v in given.items()), key=json.dumps)]
            case set() | frozenset():
                return ["set", sorted((inner(v) for v in given), key=json.dumps)]
            case list() | tuple():
                return [type(given).__name__, *map(inner, given)]
            case functools.partial():
                return ["partial", inner(given.func), inner(given.args), inner(given.keywords)]
            case MethodType():
                return ["method", inner(given.__func__), inner(given.__self__)]
            case staticmethod() | classmethod():
                return [type(given).__name__, inner(given.__func__)]
            case property():
                return ["property", inner(given.fget), inner(given.fset)]
            case functools.cached_property():
                return ["property", inner(given.func)]
            case FunctionType():
                return self._function(given, root, depth)
            case ModuleType():
                return ["module", given.__name__]
            case pl.Expr():
                return ["expression", str(given)]
            case pl.DataType():
                return ["type", repr(given)]
            case pl.Series() | pl.DataFrame():
                frame = given.to_frame() if isinstance(given, pl.Series) else given
                return [
                    "frame",
                    repr(frame.schema),
                    _hex_of(frame.write_ipc(None, compat_level=pl.CompatLevel.oldest()).getvalue()),
                ]
            case np.ndarray():
                return ["array", str(given.dtype), str(given.shape), _hex_of(np.ascontiguousarray(given).tobytes())]
            case np.generic():
                return repr(given)
            case re.Pattern():
                return ["pattern", repr(given.pattern), given.flags]
            case type():
                return self._class(given, root, depth)
            case BuiltinFunctionType():
                return ["builtin", _name(given)]
        return self._object(given, root, depth)

    def _object(self, given: Any, root: bool, depth: int) -> Any:
        own, kind = _is_own(type(given)), type(given)
        held = getattr(given, "__dict__", {})
        if own or root:
            slots = [
                s for c in kind.__mro__ for s in getattr(c, "__slots__", ()) if isinstance(s, str) and hasattr(given, s)
            ]
            held = {**held, **{s: getattr(given, s) for s in slots}}
            return ["object", self.value(kind, root=root, depth=depth), self.value(dict(held), depth=depth)]
        if kind.__module__.partition(".")[0] == "polars":  # what it wraps around a user's function
            return ["object", _name(kind), self.value(dict(held), depth=depth)]
        return ["object", _name(kind)]

    def _class(self, given: type, root: bool, depth: int) -> Any:
        parts: list[Any] = ["class", given.__qualname__]
        for one in given.__mro__ if _is_own(given) or root else ():
            if not _is_own(one) and one is not given:
                parts.append(_name(one))
                continue
            for name, held in sorted(vars(one).items()):
                if name in _NOT_CODE or name.startswith("_abc_") or _is_generated(held):
                    continue
                parts.append([name, self.value(held, root=root and inspect.isfunction(held), depth=depth)])
        return parts

    def _function(self, given: FunctionType, root: bool, depth: int) -> Any:
        inner = functools.partial(self.value, depth=depth)
        closed = [inner(cell.cell_contents) for cell in given.__closure__ or () if _is_filled(cell)]
        if not _is_own(given) and not root:
            return ["function", _name(given), closed]
        used = {
            name: given.__globals__[name] for name in sorted(_globals_of(given.__code__)) if name in given.__globals__
        }
        return [
            "function",
            self._body(given),
            closed,
            inner(given.__defaults__),
            inner(given.__kwdefaults__),
            [[name, inner(value)] for name, value in used.items()],
        ]

    def _body(self, given: FunctionType) -> Any:
        """Return the source of a `def` in a fixed format and without docstrings; for anything else, the bytecode."""
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(given))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            tree = ast.Pass()
        if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef) and tree.name == given.__name__:
            return ast.unparse(_without_docstrings(tree))
        self.bytecode = True
        return _bytecode(given.__code__)

    def without_pickles(self, node: Any) -> Any:
        """Replace pickled functions in the JSON of an expression by what they are."""
        if isinstance(node, dict):
            return {k: self.without_pickles(v) for k, v in node.items()}
        if not isinstance(node, list):
            return node
        if len(node) > 20 and all(isinstance(n, int) and 0 <= n < 256 for n in node):
            data = bytes(node)
            found = _PICKLE.search(data, 0, 200) if not data.startswith(_ARROW) else None
            if found is not None:
                # Written by Polars a moment ago in this process, of functions that are here: nothing foreign is unpickled.
                return ["python", data[: found.start() - 3].hex(), self.value(pickle.loads(data[found.start() :]))]
        return [self.without_pickles(part) for part in node]


_NOT_CODE: Final = {
    *("__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__firstlineno__", "__static_attributes__"),
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__"),
    *(
        "__orig_bases__",
        "__parameters__",
        "__slots__",
        "__match_args__",
        "__dataclass_fields__",
        "__dataclass_params__",
    ),
    *("__hash__", "version", "__slotnames__"),  # the last one is left there by whoever pickles an object of it
}
"""Attributes of a class that say nothing about what it does."""


def _is_generated(held: Any) -> bool:
    """Return whether a method was written by `dataclass` and the like: it says no more than the fields."""
    return inspect.isfunction(held) and held.__code__.co_filename.startswith("<") and held.__name__.startswith("__")


def _is_own(given: Any) -> bool:
    """Return whether code is the user's, and not of Python, of Springtide or of a library that was installed."""
    module = getattr(given, "__module__", None) or ""
    top = module.partition(".")[0]
    if top == "__main__":
        return True
    if not top or top in sys.stdlib_module_names or top in ("springtide", "polars"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not any(place in file for place in _LIBRARIES)


def _name(given: Any) -> str:
    """Return the name of an object; for user code without the module, whose name differs when the file is run as a program."""
    name = getattr(given, "__qualname__", None) or type(given).__qualname__
    return str(name) if _is_own(given) else f"{getattr(given, '__module__', None)}.{name}".removeprefix("None.")


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _globals_of(code: CodeType) -> set[str]:
    names = set()
    for one in _codes(code):
        names |= {str(i.argval) for i in dis.get_instructions(one) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names


def _bytecode(code: CodeType) -> list[Any]:
    consts = [_bytecode(c) if isinstance(c, CodeType) else _const(c) for c in code.co_consts]
    names = [list(n) for n in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)]
    return [code.co_code.hex(), code.co_argcount, code.co_kwonlyargcount, code.co_flags, consts, names]


def _const(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(map(repr, value))  # their order differs between processes
    return [_const(v) for v in value] if isinstance(value, tuple) else repr(value)


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _python() -> str:
    return f"Python {sys.version_info.major}.{sys.version_info.minor}"


def _hex(value: Any) -> str:
    return _hex_of(json.dumps(value, sort_keys=True).encode())


def _hex_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
