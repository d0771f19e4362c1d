"""The statements that a database sink runs, as text; nothing here talks to a database."""

from __future__ import annotations

from collections.abc import Sequence

from springtide.tables.names import Table, listed, quoted

ENTRY = ("query", "sink", "checkpoint", "generation", "epoch", "commit_id")
"""The columns of the ledger that make an entry, in the order of `Entry`."""


def create(table: Table, columns: Sequence[tuple[str, str]], keys: Sequence[str]) -> str:
    """Make a table with these columns and types, if there is none.

    >>> print(create(Table("calls"), [("src", "TEXT"), ("n", "BIGINT")], ["src"]))
    CREATE TABLE IF NOT EXISTS "calls" ("src" TEXT, "n" BIGINT, PRIMARY KEY ("src"))
    """
    parts = [f"{quoted(name)} {kind}" for name, kind in columns]
    if keys:
        parts.append(f"PRIMARY KEY ({listed(keys)})")
    return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})"


def create_ledger(table: Table) -> str:
    """Make the ledger beside a table, if there is none."""
    kinds = ("VARCHAR(1000)", "VARCHAR(1000)", "VARCHAR(100)", "BIGINT", "BIGINT", "VARCHAR(100)")
    parts = [f"{quoted(name)} {kind} NOT NULL" for name, kind in zip(ENTRY, kinds, strict=True)]
    return f"CREATE TABLE IF NOT EXISTS {table.ledger} (target VARCHAR(250) PRIMARY KEY, {', '.join(parts)})"


def on_conflict(columns: Sequence[str], keys: Sequence[str]) -> str:
    """Write the clause that replaces a row whose keys are already there.

    >>> print(on_conflict(["src", "n"], ["src"]))
    ON CONFLICT ("src") DO UPDATE SET "n" = excluded."n"
    """
    others = [f"{quoted(c)} = excluded.{quoted(c)}" for c in columns if c not in keys]
    return f"ON CONFLICT ({listed(keys)}) DO " + (f"UPDATE SET {', '.join(others)}" if others else "NOTHING")
