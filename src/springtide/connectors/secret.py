"""Values that must not be seen: passwords, tokens, keys."""

from __future__ import annotations

import os

from springtide.query.errors import SpringtideError


class Secret:
    """A string that is never shown: not by `repr`, in a message, in a log or in a plan. `reveal()` returns it to the connector that needs it.

    It travels where the connector that holds it travels: a source goes to the tasks that read it and to no others, a sink stays in the driver.

    >>> password = Secret("hunter2")
    >>> password, f"{password}", password.reveal()
    (Secret(…), '…', 'hunter2')
    """

    __slots__ = ("_name", "_value")

    def __init__(self, value: str) -> None:
        """Keep a value."""
        self._value: str | None = value
        self._name: str | None = None

    @staticmethod
    def env(name: str) -> Secret:
        """Return a secret that is read from an environment variable wherever it is revealed: the value itself is sent nowhere."""
        secret = Secret("")
        secret._value, secret._name = None, name
        return secret

    def reveal(self) -> str:
        """Return the value."""
        if self._value is not None:
            return self._value
        assert self._name is not None
        found = os.environ.get(self._name)
        if found is None:
            raise SpringtideError(
                f"the environment variable {self._name} is not set; set it for the driver and the executors"
            )
        return found

    def __eq__(self, other: object) -> bool:
        """Return whether two secrets are the same."""
        return isinstance(other, Secret) and (self._value, self._name) == (other._value, other._name)

    def __hash__(self) -> int:
        """Return a hash of the value."""
        return hash((self._value, self._name))

    def __repr__(self) -> str:
        """Hide the value."""
        return f"Secret.env({self._name!r})" if self._name is not None else "Secret(…)"

    def __str__(self) -> str:
        """Hide the value."""
        return "…"
