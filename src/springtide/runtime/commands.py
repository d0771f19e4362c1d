"""What people ask of a running query: taken from the control folder between two epochs, done for good with the next manifest.

Whatever lies in that folder, a run does not die of it: a command that makes no sense is refused, and an event says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from springtide.query.errors import shown
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.state.control import Command, receive

_INSTANCES, _BUCKETS = 10_000, 1 << 16
"""More than anybody can mean."""
_SHOWN = 60


class Commands:
    """The control folder of one run."""

    def __init__(self, root: Path, note: Callable[[str], None]) -> None:
        """Look at nothing yet."""
        self._root, self._note = root, note
        self._taken: list[Path] = []
        """Files of commands that take effect with the next epoch."""
        self._stuck: set[Path] = set()
        """Files that are done with but could not be removed, or that were refused and stay."""
        self.stopped = False
        """Whether the run was told to stop while it waited for something."""

    def take(self, change: Reconfiguring) -> bool:
        """Do what people ask for, from the next epoch on; True when the run is to stop."""
        stop = self.stopped
        for command in self._receive():
            if command.name == "stop":
                stop = True
                self._remove(command)
                continue
            try:
                self._do(command, change)
                self._taken.append(_file_of(command))  # done for good with the next manifest, which has the new map
            except Exception as error:  # whatever somebody wrote into a file, the run goes on
                self._note(f"the command {command.name[:_SHOWN]!r} was refused: {_reason(error)}")
                self._remove(command)
        return stop

    def told_to_stop(self) -> bool:
        """Tell whether somebody wants the run to stop while it waits for something."""
        with suppress(OSError):  # what it waits for may be the checkpoint's own disk
            for command in self._receive():
                if command.name == "stop":
                    self.stopped = True
                    self._remove(command)
        return self.stopped

    def done(self) -> None:
        """Forget what has taken effect: the manifest has it."""
        while self._taken:
            self._forget(self._taken.pop())

    def _receive(self) -> list[Command]:
        return receive(self._root, {*self._taken, *self._stuck}, self._refuse)

    def _refuse(self, file: Path, reason: str) -> None:
        self._note(f"the file {file.name[:_SHOWN]!r} in the control folder was refused: {reason}")
        self._stuck.add(file)

    def _remove(self, command: Command) -> None:
        self._forget(_file_of(command))

    def _forget(self, file: Path) -> None:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            self._note(f"the command in {file} is done with, but cannot be removed ({error.strerror}): remove it")
            self._stuck.add(file)

    def _do(self, command: Command, change: Reconfiguring) -> None:
        given, protocol = command.options, command.options.get("protocol")
        match command.name:
            case "scale":
                change.scale(_text(given, "step"), _number(given, "instances", _INSTANCES), protocol)
            case "move":
                change.move(
                    _text(given, "step"), _numbers(given, "buckets"), _number(given, "to", _INSTANCES), protocol
                )
            case "rebalance":
                change.rebalance(_text(given, "step"), protocol)
            case "pause":
                change.pause()
            case "resume":
                change.resume()
            case _:
                raise ValueError("there is no such command; there are scale, move, rebalance, pause, resume and stop")


def _file_of(command: Command) -> Path:
    assert command.file is not None
    return command.file


def _reason(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) and error.args else str(error)


def _text(given: Mapping[str, Any], name: str) -> str:
    if not isinstance(given[name], str):
        raise ValueError(f"{name} is not a text")
    return str(given[name])


def _number(given: Mapping[str, Any], name: str, most: int) -> int:
    return _whole(given[name], name, most)


def _numbers(given: Mapping[str, Any], name: str) -> list[int]:
    if not isinstance(given[name], list):
        raise ValueError(f"{name} is not a list of numbers")
    return [_whole(value, name, _BUCKETS) for value in given[name]]


def _whole(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > most:
        raise ValueError(f"{name} is {shown(value)}, not a whole number up to {most:,}")
    return value
