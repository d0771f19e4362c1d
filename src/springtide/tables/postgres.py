"""How to connect to PostgreSQL: an address, the secrets apart from it, and a session that behaves the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.connectors import Secret
from springtide.query.errors import QueryError, shown
from springtide.tables.names import literal

_SESSION = (
    "SET application_name = 'springtide'",
    "SET datestyle = 'ISO, MDY'",
    "SET intervalstyle = 'postgres'",
    "SET timezone = 'UTC'",
    "SET bytea_output = 'hex'",
    "SET lock_timeout = '30s'",  # a session that was cut off may lock the ledger for a while: then it is tried again
    "SET tcp_keepalives_idle = 15",  # … until the server has noticed
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
)
_READING = (
    "SET application_name = 'springtide'",
    "SET datestyle = 'ISO, MDY'",
    "SET timezone = 'UTC'",
    "SET synchronize_seqscans = off",  # rows come in the order of their places
    "SET max_parallel_workers_per_gather = 0",
)
_DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "30000", "client_encoding": "utf8"}
_SECRETS = {"password", "sslpassword"}


_kept: dict[Server, Any] = {}
"""Connections that this process keeps for reading: opening one takes as long as reading ten thousand rows."""


@dataclass(frozen=True)
class Server:
    """A database of a PostgreSQL server. What is not given comes from the environment variables (`PGPASSWORD`, `PGSSLMODE`, …) that libpq knows."""

    parameters: tuple[tuple[str, str], ...]
    """The parameters for libpq, without secrets."""
    secrets: tuple[tuple[str, Secret], ...] = field(default=(), repr=False)

    def connect(self) -> Any:
        """Return a new connection whose session is set up."""
        import psycopg

        connection = psycopg.connect(**self._revealed)
        try:
            connection.execute("; ".join(_SESSION))
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def read(self, statement: str, snapshot: str | None = None) -> Any:
        """Return the result of a statement as an Arrow table, in a snapshot that another session has exported; None if the snapshot is gone."""
        from adbc_driver_postgresql import dbapi

        kept = _kept.pop(self, None)
        connection = kept or self._connect_for_arrow()
        try:
            found = _read(connection, statement, snapshot)
        except BaseException as error:
            connection.close()
            if not isinstance(error, dbapi.Error):
                raise
            if error.sqlstate in ("22023", "42704", "55000") and "snapshot" in str(error):
                return None  # it is invalid, it does not exist, or its session is just ending
            if kept is not None and isinstance(error, dbapi.OperationalError):
                return self.read(statement, snapshot)  # the server was away in the meantime
            if isinstance(error, dbapi.OperationalError):
                raise ConnectionError(" ".join(str(error).split())) from error
            raise
        _kept[self] = connection
        return found

    def _connect_for_arrow(self) -> Any:
        import psycopg
        from adbc_driver_postgresql import dbapi

        try:
            connection = dbapi.connect(psycopg.conninfo.make_conninfo(**self._revealed), autocommit=True)
        except dbapi.OperationalError as error:
            raise ConnectionError(" ".join(str(error).split())) from error
        try:
            with connection.cursor() as cursor:
                for statement in _READING:
                    cursor.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _revealed(self) -> dict[str, Any]:
        secrets = {name: secret.reveal() for name, secret in self.secrets}
        return {**_DEFAULTS, **dict(self.parameters), **secrets}

    def __str__(self) -> str:
        """Say which database it is."""
        known = dict(self.parameters)
        return f"{known.get('dbname', 'the default database')} at {known.get('host', 'the default host')}"


def _read(connection: Any, statement: str, snapshot: str | None) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            cursor.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        cursor.execute(statement)
        found = cursor.fetch_arrow_table()
        cursor.execute("COMMIT")
        return found


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
    except psycopg.ProgrammingError:  # its message may contain the password
        hint = 'give "postgresql://user@host/database", and options that libpq knows'
        raise QueryError(f"({step})", "the address or the options are not valid", hint) from None
    if password is not None:
        known["password"] = password
    secrets = {name: value for name, value in known.items() if name in _SECRETS}
    kept = {name: value if isinstance(value, Secret) else Secret(str(value)) for name, value in secrets.items()}
    return Server(tuple(sorted(plain.items())), tuple(sorted(kept.items())))


def forget() -> None:
    """Close the connections that were kept."""
    while _kept:
        _kept.popitem()[1].close()
