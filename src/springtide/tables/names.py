"""Names of tables and columns, quoted for SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEDGER = "springtide_ledger"
"""The table, beside the one with the rows, that says whose rows are there and up to which epoch: one row for each table."""


def quoted(name: str) -> str:
    """Quote a name.

    >>> print(quoted('the "best"'))
    "the ""best""\"
    """
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Quote names, separated by commas."""
    return ", ".join(map(quoted, names))


def literal(text: str) -> str:
    """Quote a string as a value.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Table:
    """A table, perhaps in a schema.

    >>> Table.named("sales.calls")
    Table(name='calls', schema='sales')
    """

    name: str
    schema: str | None = None

    @staticmethod
    def named(name: str) -> Table:
        """Return the table that `name` or `schema.name` means."""
        schema, _, table = name.rpartition(".")
        return Table(table, schema or None)

    @property
    def ledger(self) -> Table:
        """The ledger: it is in the same schema."""
        return Table(LEDGER, self.schema)

    def __str__(self) -> str:
        """Write it for a statement."""
        return quoted(self.name) if self.schema is None else f"{quoted(self.schema)}.{quoted(self.name)}"
