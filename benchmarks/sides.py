"""Two checkouts beside each other in one run: each has a process and a Spark session of its own, and works while the other waits."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Side:
    """A checkout at work: a script that reads a task from every line of its input, and answers each with a line of JSON."""

    def __init__(self, checkout: Path, script: Path, folder: Path, *args: str) -> None:
        """Start the script with the `springtide` of a checkout, and with that checkout's environment if it has one."""
        folder.mkdir()
        own = checkout / ".venv" / "bin" / "python"
        python = str(own if own.exists() else sys.executable)
        # What this process was told of Python and modules is not for the other checkout.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "VIRTUAL_ENV"))}
        env |= {"PYTHONPATH": str(checkout.resolve() / "src"), "PYSPARK_PYTHON": python}
        self._process = subprocess.Popen(
            [python, str(script), str(folder), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=folder,
        )

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Have a task done, and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(task), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError("a checkout ended before its time; see what it said above")

    def stop(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def turn_about(sides: dict[str, Side], round_number: int) -> list[str]:
    """Return the names of the sides in the order of a round: who comes first changes, so that a busy minute of the machine hits both."""
    return list(sides) if round_number % 2 else list(reversed(sides))
