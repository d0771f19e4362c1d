"""What steps and queries may be called."""

from __future__ import annotations

from typing import Any

from springtide.query.errors import QueryError, shown

_COLUMN_CALLED_NAME = {
    "map": "; to make a column with that name write pl.col('x').alias('name')",
    "select": "; to make a column with that name write pl.col('x').alias('name')",
    "aggregate": "; to make a column with that name give the aggregate another one, as in n=st.count(), and rename it afterwards: .rename({'n': 'name'})",
    "split": "; give the output another name",
}


def check_name(kind: str, name: Any) -> None:
    """Refuse a name that cannot be part of a path, a command or a report."""
    if not isinstance(name, str):
        hint = f"name= is what the step is called{_COLUMN_CALLED_NAME.get(kind, '')}"
        raise QueryError(f"({kind})", f"name={shown(name)} is not a string", hint)
    if not name.strip() or name.startswith(".") or any(c in "/\\=" or not c.isprintable() for c in name):
        raise QueryError(
            f"{name!r} ({kind})", "this name cannot be used in files and commands", "use letters, digits, - and _"
        )
