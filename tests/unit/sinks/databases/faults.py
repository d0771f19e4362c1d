"""Connections that break at a chosen operation, and runs that go on after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.sinks.kinds import Died


class Lost(Exception):
    """The connection is lost: a fault that passes."""


@dataclass
class Breaking:
    """Makes connections of which the operation with a number fails, once, before or after it is done."""

    make: Callable[[], Any]
    number: int
    late: bool
    """It is done, and nobody hears of it."""
    error: type[BaseException] = Lost
    operations: int = 0
    made: list[Any] = field(default_factory=list)

    def __call__(self) -> Any:
        self.made.append(self.make())
        return Connection(self.made[-1], self)

    def do(self, action: Callable[[], Any]) -> Any:
        """Do an operation, unless it is the one that fails."""
        self.operations += 1
        if self.operations != self.number:
            return action()
        if self.late:
            action()
        if self.error is Died:  # the system closes what a process had open
            for connection in self.made:
                connection.close()
        raise self.error()


class Connection:
    """A connection whose operations are counted."""

    def __init__(self, inner: Any, breaking: Breaking) -> None:
        self.inner, self.breaking = inner, breaking

    def cursor(self) -> Any:
        return Cursor(self.inner.cursor(), self.breaking)

    def commit(self) -> None:
        self.breaking.do(self.inner.commit)

    def rollback(self) -> None:
        self.inner.rollback()

    def close(self) -> None:
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Cursor:
    """A cursor whose statements are counted."""

    def __init__(self, inner: Any, breaking: Breaking) -> None:
        self.inner, self.breaking = inner, breaking

    def execute(self, *arguments: Any) -> Any:
        return self.breaking.do(lambda: self.inner.execute(*arguments))

    def executemany(self, *arguments: Any) -> Any:
        return self.breaking.do(lambda: self.inner.executemany(*arguments))

    def copy(self, *arguments: Any) -> Any:
        return Copy(self.inner.copy(*arguments), self.breaking)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Copy:
    """A COPY whose beginning and blocks are counted: each may be the last that arrives."""

    def __init__(self, inner: Any, breaking: Breaking) -> None:
        self.inner, self.breaking = inner, breaking

    def __enter__(self) -> Any:
        self.entered = self.breaking.do(self.inner.__enter__)
        return self

    def __exit__(self, *error: Any) -> Any:
        return self.inner.__exit__(*error)

    def write(self, block: Any) -> None:
        self.breaking.do(lambda: self.entered.write(block))


BREAKS = [(late, error) for late in (False, True) for error in (Lost, Died)]
"""Before or after an operation; the connection or the whole process."""
