"""Ctrl-C: the first one asks for a stop, the second one ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Notes Ctrl-C (and SIGTERM) inside a `with` block."""

    def __init__(self) -> None:
        """Nothing was asked for yet."""
        self.stop_wanted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        """Take over the signals; Spark's own handler would cancel the running job."""
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.stop_wanted:
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the live view hides the cursor
            os._exit(128 + number)  # Spark's processes end with this one
        self.stop_wanted = True
