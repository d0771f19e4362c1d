"""A query on nodes that have nothing in common but an object store: python -m tests.spark.on_nodes FOLDER MASTER ADDRESS EVERY.

Each worker has a cache of its own (FOLDER/cache-N), and the driver one that it loses when it moves. It runs in a process of its own, for there is one Spark
context in a process. The last line that it prints says how it went.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.elastic.standalone import executors_of
from tests.spark.on_cluster import Drive


class Nodes(Drive):
    """The query with its checkpoint in a store, as often durable as is said."""


def main(folder: Path, master: str, address: str, every: str) -> None:
    Nodes.durability = every
    os.environ["SPRINGTIDE_CACHE"] = str(folder / "cache-driver")
    drive = Nodes(folder, master, 0, address)
    told: dict[str, Any] = {}
    drive.until("the first epochs", lambda: drive.instances() == 1)
    drive.scale(4)
    epoch = drive.run.status()["epoch"]
    drive.until("epochs with four instances", lambda: drive.run.status()["epoch"] > epoch + 5)

    # a node dies with all that it has
    process = executors_of(drive.application)[0]
    node = Path(process.cwd()).relative_to(folder.parent / "cluster").parts[0].removeprefix("work-")
    for executor in executors_of(drive.application):
        if Path(executor.cwd()).is_relative_to(folder.parent / "cluster" / f"work-{node}"):
            executor.send_signal(signal.SIGKILL)
    shutil.rmtree(folder / f"cache-{node}", ignore_errors=True)
    epoch = drive.run.status()["epoch"]
    told["killed"] = drive.until("epochs without that node", lambda: drive.run.status()["epoch"] > epoch + 3)
    drive.scale(2)
    told["notes"] = [note for _, note in drive.run.events()]
    drive.run.stop()

    # the driver moves: its cache stays behind
    told["caches"] = sorted(
        path.name for path in folder.glob("cache-*") if any(f.suffix == ".arrow" for f in path.rglob("*"))
    )
    os.environ["SPRINGTIDE_CACHE"] = str(folder / "cache-moved")
    drive.run = drive.start(wait=300.0, instances={"counts": 3})
    drive.until("epochs after the move", lambda: drive.instances() == 3)
    told |= drive.finish()
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
