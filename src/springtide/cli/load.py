"""Finds the query in a Python file, its elasticity, and whatever else a person names: a policy, a session function."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from springtide.cli.errors import CommandError
from springtide.elastic.settings import Elastic, elastic_of
from springtide.query.errors import QueryError, nearest
from springtide.runtime.query import Query


def load_query(where: str) -> Query:
    """Return the query of `FILE` or `FILE:NAME`; the name is that of the variable or of the query."""
    file, name = _parts(where)
    module = load_module(file)
    found = {variable: value for variable, value in vars(module).items() if isinstance(value, Query)}
    distinct = {id(query): query for query in found.values()}
    if name is not None:
        named = found | {query.name: query for query in distinct.values()}
        if name not in named:
            raise CommandError(f"{file} has no query {name!r}; {nearest(name, found)}")
        return named[name]
    if not distinct:
        raise CommandError(f"{file} defines no query; assign one: query = st.Query('name', stream.to(sink))")
    if len(distinct) > 1:
        raise CommandError(f"{file} defines several queries; say which: {', '.join(f'{file}:{v}' for v in found)}")
    return next(iter(distinct.values()))


def module_of(where: str) -> ModuleType:
    """Return the module that `load_query` made from `FILE` or `FILE:NAME`."""
    return sys.modules[_module_name(_parts(where)[0])]


def elastic_in(where: str) -> Elastic | None:
    """Return what the module that `load_query` made says about elasticity: `elastic = st.Elastic(…)`, a policy or True."""
    found = vars(module_of(where)).get("elastic")
    return None if isinstance(found, ModuleType) else elastic_of(found)


def file_of(where: str) -> Path:
    """Return the file of `FILE` or `FILE:NAME`."""
    return _parts(where)[0]


def load_module(file: Path) -> ModuleType:
    """Run a Python file as a module; report an error in it with its line."""
    if not file.is_file():
        raise CommandError(f"there is no file {file}" if not file.exists() else f"{file} is not a file")
    spec = importlib.util.spec_from_file_location(_module_name(file), file)
    if spec is None or spec.loader is None:
        raise CommandError(f"{file} is not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    sys.path.insert(0, str(file.resolve().parent))  # as when Python runs the file
    try:
        # no bytecode of before: a file that is read again may be as long as it was, and changed in the same second
        exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), vars(module))
    except QueryError as error:
        raise CommandError(f"{file}{_line(error, file)}: {error}") from None
    except SyntaxError as error:
        raise CommandError(f"{error.filename or file}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        lines = str(error).splitlines()
        raise CommandError(f"{file}{_line(error, file)}: {type(error).__name__}: {lines[0] if lines else ''}") from None
    finally:
        sys.path.pop(0)
    return module


def import_beside(option: str, name: str, folder: Path | None) -> ModuleType:
    """Import a module that an option names, from `folder` or wherever Python finds modules."""
    places = [str(folder.resolve())] if folder else []
    sys.path[:0] = places  # as when the query's file is run
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise CommandError(f"{option}: the module {name!r} cannot be imported, {error}") from None
    finally:
        del sys.path[: len(places)]


def _parts(where: str) -> tuple[Path, str | None]:
    file, colon, name = where.rpartition(":")
    return (Path(file), name) if colon and not Path(where).exists() else (Path(where), None)


def _module_name(file: Path) -> str:
    return f"_springtide_{file.stem}"


def _line(error: BaseException, file: Path) -> str:
    """Find the last line of the file that was running when the error came."""
    line, step = "", error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(file):
            line = f":{step.tb_lineno}"
        step = step.tb_next
    return line
