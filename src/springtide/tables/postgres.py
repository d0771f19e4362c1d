"""How to connect to PostgreSQL: an address, secrets apart from it, and a session that means the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.connectors import Secret
from springtide.query.errors import QueryError, shown

_SESSION = (
    "SET application_name = 'springtide'",
    "SET datestyle = 'ISO, MDY'",
    "SET intervalstyle = 'postgres'",
    "SET timezone = 'UTC'",
    "SET bytea_output = 'hex'",
    "SET lock_timeout = '30s'",  # a session that was cut off may hold the ledger for a while: then it is tried again
    "SET tcp_keepalives_idle = 15",  # … until the server has noticed
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
)
_DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "30000", "client_encoding": "utf8"}
_SECRETS = {"password", "sslpassword"}


@dataclass(frozen=True)
class Server:
    """A database of a PostgreSQL server. What is not said comes from the variables (`PGPASSWORD`, `PGSSLMODE`, …) that libpq knows."""

    parameters: tuple[tuple[str, str], ...]
    """What libpq is told, without secrets."""
    secrets: tuple[tuple[str, Secret], ...] = field(default=(), repr=False)

    def connect(self) -> Any:
        """Return a new connection, set up for us."""
        import psycopg

        secrets = {name: secret.reveal() for name, secret in self.secrets}
        parameters: dict[str, Any] = {**_DEFAULTS, **dict(self.parameters), **secrets}
        connection = psycopg.connect(**parameters)
        try:
            connection.execute("; ".join(_SESSION))
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def __str__(self) -> str:
        """Say which database it is."""
        known = dict(self.parameters)
        return f"{known.get('dbname', 'the default database')} at {known.get('host', 'the default host')}"


def server(step: str, url: str, password: Secret | str | None, options: Mapping[str, Any] | None) -> Server:
    """Read an address as users write it; what is secret in it is kept apart."""
    try:
        import psycopg
    except ImportError as error:
        raise QueryError(f"({step})", "psycopg is not installed", "pip install 'springtide[postgres]'") from error
    if not isinstance(url, str):
        raise QueryError(f"({step})", f"{shown(url)} is not an address", 'give one: "postgresql://user@host/database"')
    try:
        known: dict[str, Any] = {**psycopg.conninfo.conninfo_to_dict(url), **(options or {})}
        plain = {name: str(value) for name, value in known.items() if name not in _SECRETS}
        psycopg.conninfo.make_conninfo(**plain)
    except psycopg.ProgrammingError:  # it may have the password in its words
        hint = 'give "postgresql://user@host/database", and options that libpq knows'
        raise QueryError(f"({step})", "the address or the options are not understood", hint) from None
    if password is not None:
        known["password"] = password
    secrets = {name: value for name, value in known.items() if name in _SECRETS}
    kept = {name: value if isinstance(value, Secret) else Secret(str(value)) for name, value in secrets.items()}
    return Server(tuple(sorted(plain.items())), tuple(sorted(kept.items())))
