"""A query on nodes with caches of their own, whose instances stay where their state is: python -m tests.spark.at_home FOLDER MASTER ADDRESS.

The last line that it prints says where instances were, and how much state was read from where.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.elastic.standalone import executors_of
from tests.spark.on_cluster import Drive


class AtHome(Drive):
    """The query with its checkpoint in a store."""

    durability = "1s"

    def homes(self) -> dict[str, str]:
        """Return which executor each instance is at home on."""
        return {f"{name} {i}": e.id for (name, i), e in sorted(self.run._loop.form.executor.homes.items())}

    def epochs(self, count: int) -> list[Any]:
        """Wait for so many epochs, and give what was measured in them."""
        first = self.run.status()["epoch"]
        self.until(f"{count} epochs", lambda: self.run.status()["epoch"] >= first + count)
        return [s for s in self.run.snapshots() if s.epoch > first]


def main(folder: Path, master: str, address: str) -> None:
    os.environ["SPRINGTIDE_CACHE"] = str(folder / "cache-driver")
    drive = AtHome(folder, master, 0, address)
    told: dict[str, Any] = {}
    drive.until("the first epochs", lambda: drive.instances() == 1)
    drive.scale(2)
    drive.epochs(3)
    told["before"] = drive.homes()
    seen = drive.epochs(8)
    told["after"] = drive.homes()
    told["read"], told["fetched"] = (sum(getattr(s.traffic, n) for s in seen) for n in ("read", "fetched"))
    told["requests"] = sum(s.traffic.requests for s in seen) / len(seen)
    executors_of(drive.application)[0].send_signal(signal.SIGKILL)
    drive.until("who has no executor any more is elsewhere", lambda: drive.homes() != told["after"])
    drive.epochs(3)
    told["at_last"] = drive.homes()
    print(json.dumps(told | drive.finish()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
