"""Who may import whom. An import counts wherever it stands: in a function and under TYPE_CHECKING as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# Spark is known here and nowhere else.
SPARK = ["springtide.runtime.spark", "springtide.elastic.resources", "springtide.sources", "springtide.sinks"]

# A module of the package on the left imports nothing of springtide but its own package and those on the right.
ONLY = {
    "springtide.query": [],
    "springtide.compiler": ["springtide.query"],
    "springtide.elastic": [
        "springtide.query",
        "springtide.state",
    ],  # pure; what has to do with Spark is in elastic.resources
}
EXCEPT = ["springtide.elastic.resources"]
# A module of the package on the left imports nothing of those on the right.
NEVER = {
    "springtide": ["springtide.cli"],
    "springtide.kernels": ["pyspark", *SPARK],
    "springtide.state": ["pyspark", *SPARK],
    "springtide.runtime.reference": ["springtide.kernels"],
}


def within(name: str, packages: list[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def imports(source: str, module: str, *, is_package: bool, modules: set[str]) -> Iterator[str]:
    """The names of the modules that a source text imports, relative ones made absolute."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:  # `from a import b` imports the module a.b if there is one, else a
                yield f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in modules else origin


def all_imports() -> list[tuple[str, str]]:
    """(module, what it imports) for every import statement of springtide."""
    files = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return [
        (module, imported)
        for module, path in files.items()
        for imported in imports(
            path.read_text("utf-8"), module, is_package=path.name == "__init__.py", modules=set(files)
        )
    ]


@pytest.mark.parametrize("package", ONLY)
def test_package_imports_only_its_lower_layers(package: str) -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, imported in all_imports()
        if within(module, [package])
        and not within(module, EXCEPT)
        and within(imported, ["springtide"])
        and not within(imported, [package, *ONLY[package]])
    ]
    assert wrong == []


@pytest.mark.parametrize("package", NEVER)
def test_package_never_imports(package: str) -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, imported in all_imports()
        if within(module, [package])
        and within(imported, NEVER[package])
        and not (within(module, ["springtide.cli"]) and within(imported, ["springtide.cli"]))  # cli may import itself
    ]
    assert wrong == []


def test_only_the_edges_know_spark() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, imported in all_imports()
        if within(imported, ["pyspark"]) and not within(module, SPARK)
    ]
    assert wrong == []


def test_every_form_of_import_is_seen() -> None:
    source = """
import pyspark.sql as ps
from . import sibling, helper
from .sibling import thing
from ..state import store
def late():
    from springtide.cli import main
    from springtide import query, Query
"""
    modules = {"springtide", "springtide.query", "springtide.kernels.sibling", "springtide.state.store"}
    assert list(imports(source, "springtide.kernels.gate", is_package=False, modules=modules)) == [
        "pyspark.sql",
        "springtide.kernels.sibling",
        "springtide.kernels",
        "springtide.kernels.sibling",
        "springtide.state.store",
        "springtide.cli",
        "springtide.query",
        "springtide",
    ]
    assert list(imports("from .x import y", "springtide.query", is_package=True, modules=modules)) == [
        "springtide.query.x"
    ]
