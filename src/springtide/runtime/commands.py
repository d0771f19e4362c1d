"""What people ask of a running query: taken from the control folder between two epochs, done for good with the next manifest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from springtide.query.errors import SpringtideError
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.state.control import Command, receive


class Commands:
    """The control folder of one run."""

    def __init__(self, root: Path, note: Callable[[str], None]) -> None:
        """Look at nothing yet."""
        self._root, self._note = root, note
        self._taken: list[Path] = []
        """Files of commands that take effect with the next epoch."""
        self.stopped = False
        """Whether the run was told to stop while it waited for something."""

    def take(self, change: Reconfiguring) -> bool:
        """Do what people ask for, from the next epoch on; True when the run is to stop."""
        stop = self.stopped
        for command in receive(self._root, self._taken):
            assert command.file is not None
            if command.name == "stop":
                stop = True
                command.file.unlink(missing_ok=True)
                continue
            try:
                self._do(command, change)
                self._taken.append(command.file)  # done for good with the next manifest, which has the new map
            except (SpringtideError, KeyError, TypeError, ValueError) as error:
                self._note(f"the command {command.name!r} was refused: {error}")
                command.file.unlink(missing_ok=True)
        return stop

    def told_to_stop(self) -> bool:
        """Tell whether somebody wants the run to stop while it waits for something."""
        with suppress(OSError):  # what it waits for may be the checkpoint's own disk
            for command in receive(self._root, self._taken):
                if command.name == "stop" and command.file is not None:
                    self.stopped = True
                    command.file.unlink(missing_ok=True)
        return self.stopped

    def done(self) -> None:
        """Forget what has taken effect: the manifest has it."""
        while self._taken:
            self._taken.pop().unlink(missing_ok=True)

    def _do(self, command: Command, change: Reconfiguring) -> None:
        given, protocol = command.options, command.options.get("protocol")
        match command.name:
            case "scale":
                change.scale(str(given["step"]), int(given["instances"]), protocol)
            case "move":
                change.move(str(given["step"]), [int(b) for b in given["buckets"]], int(given["to"]), protocol)
            case "rebalance":
                change.rebalance(str(given["step"]), protocol)
            case "pause":
                change.pause()
            case "resume":
                change.resume()
            case _:
                self._note(f"the command {command.name!r} is unknown and was left out")
