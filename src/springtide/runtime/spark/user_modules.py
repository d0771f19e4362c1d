"""What a user's own program must bring along to Spark's tasks."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle


def ship(module: ModuleType) -> None:
    """Let tasks have the functions and classes of a module that was loaded from a file, and import its neighbours.

    Call it before the session is made: workers inherit the environment of the driver in local mode.
    """
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    assert module.__file__ is not None
    paths = [str(Path(module.__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
