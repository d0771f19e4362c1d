"""Nodes on one machine that share nothing but an S3-compatible server: a standalone cluster, a cache for each worker and one for the driver."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import springtide as st
from benchmarks.elastic.standalone import SETTINGS, standalone
from benchmarks.measure import ROOT, say


@contextmanager
def nodes(folder: Path, workers: int, memory: str = "1g") -> Iterator[Any]:
    """Start workers with one executor of one core each, and a session."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPRINGTIDE_CACHE"] = str(folder / "cache-driver")

    def environment(worker: int) -> dict[str, str]:
        return {"SPRINGTIDE_CACHE": str(folder / f"cache-{worker}")}

    with standalone(folder / "cluster", workers=workers, cores=1, environment=environment, memory=memory) as master:
        say("starting Spark")
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        settings = SETTINGS | {"spark_executorEnv_PYTHONPATH": path, "spark_driver_memory": "2g"}
        spark = st.spark_session(master, **settings | {"spark_executor_memory": memory})
        try:
            yield spark
        finally:
            spark.stop()
