"""Two checkouts beside each other in one run: each has a process of its own, and works while the other waits."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Worker:
    """A process at work: it reads a task from every line of its input, and answers each with a line of JSON."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Have a task done, and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(task), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"{self._process.args} ended before its time; see what it said above")

    def stop(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def kill(self) -> None:
        """End it at once: whoever waits for its answer is told that it ended."""
        self._process.kill()


class Side(Worker):
    """A checkout at work, with a Spark session of its own."""

    def __init__(self, checkout: Path, script: Path, folder: Path, *args: str) -> None:
        """Start the script with the `springtide` of a checkout, and with that checkout's environment if it has one."""
        folder.mkdir()
        own = checkout / ".venv" / "bin" / "python"
        python = str(own if own.exists() else sys.executable)
        # What this process was told of Python and modules is not for the other checkout.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "VIRTUAL_ENV"))}
        env |= {"PYTHONPATH": str(checkout.resolve() / "src"), "PYSPARK_PYTHON": python}
        super().__init__([python, str(script), str(folder), *args], env=env, cwd=folder)


def turn_about(sides: dict[str, Side], round_number: int) -> list[str]:
    """Return the names of the sides in the order of a round: who comes first changes, so that a busy minute of the machine hits both."""
    return list(sides) if round_number % 2 else list(reversed(sides))
