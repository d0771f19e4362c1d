"""A PostgreSQL server of the tests' own: in a folder of its own, reached by a socket in it, without a port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg


def programs() -> Path | None:
    """Where PostgreSQL's programs are; None if it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@dataclass(frozen=True)
class Postgres:
    """The server."""

    programs: Path
    folder: Path
    user: str | None
    """Who runs it, if that is not us: it refuses to be run by root."""
    fsync: str = "off"

    @property
    def url(self) -> str:
        return f"postgresql://tester@/tests?host={self.folder}"

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.url)

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement, and give what it returns."""
        with self.connect() as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description is not None else []

    def start(self) -> None:
        settings = f"-c listen_addresses= -c fsync={self.fsync} -c log_min_messages=fatal -k {self.folder}"
        self._run(
            "pg_ctl", "-w", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-o", settings, "start"
        )

    def stop(self) -> None:
        """Stop it at once, as a crash would."""
        self._run("pg_ctl", "-w", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def make(self) -> None:
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8", "-N")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.programs / program), *arguments],
            check=True,
            user=self.user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def running(where: Path, fsync: str = "off") -> Iterator[Postgres]:
    """Make and start a server, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: the name of a socket has at most 107 characters
    user = None
    if os.getuid() == 0:
        user = next(name for name in ("postgres", "nobody") if name in {entry.pw_name for entry in pwd.getpwall()})
        shutil.chown(folder, user)
    server = Postgres(where, folder, user, fsync)
    try:
        server.make()
        server.start()
        try:
            with psycopg.connect(f"postgresql://tester@/postgres?host={folder}", autocommit=True) as connection:
                connection.execute("CREATE DATABASE tests")
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
