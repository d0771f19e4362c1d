"""Where an Iceberg table is: a catalog, with its secrets, and a name in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.connectors import Secret
from springtide.query.errors import QueryError, shown

_AT_ONCE = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True)
class IcebergPlace:
    """A table of a catalog that PyIceberg knows: by the name of the catalog in its settings, or with its properties."""

    name: str
    catalog: str
    properties: tuple[tuple[str, Secret], ...] = field(default=(), repr=False)

    def open_catalog(self) -> Any:
        """Connect to the catalog."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.catalog, **{name: secret.reveal() for name, secret in self.properties})

    @property
    def identifier(self) -> tuple[str, ...]:
        """The name, part by part."""
        return tuple(self.name.split("."))

    def table(self, catalog: Any) -> Any:
        """Return the table as it is now; None if there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            found = catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        # by default the library retries a commit on top of a faster one; here it must fail
        known = {**found.metadata.properties, **_AT_ONCE}
        found.metadata = found.metadata.model_copy(update={"properties": known})
        return found

    def __str__(self) -> str:
        """Say which table it is."""
        return f"{self.name} (catalog {self.catalog})"


def iceberg_place(step: str, table: str, catalog: str | Mapping[str, str | Secret]) -> IcebergPlace:
    """Read what a user gave."""
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise QueryError(f"({step})", "pyiceberg is not installed", "pip install 'springtide[iceberg]'") from error
    if not isinstance(table, str) or len(table.split(".")) < 2 or not all(table.split(".")):
        raise QueryError(
            f"({step})", f"{shown(table)} does not name a table in a namespace", 'write for example "lake.calls"'
        )
    if isinstance(catalog, str) and catalog:
        return IcebergPlace(table, catalog)
    if not isinstance(catalog, Mapping) or not catalog:
        hint = 'give its name, or its properties: catalog={"type": "rest", "uri": "https://…"}'
        raise QueryError(f"({step})", f"catalog={shown(catalog)} is not a catalog", hint)
    kept = {name: value if isinstance(value, Secret) else Secret(str(value)) for name, value in catalog.items()}
    name = kept.pop("name", Secret("default")).reveal()
    return IcebergPlace(table, name, tuple(sorted(kept.items())))
