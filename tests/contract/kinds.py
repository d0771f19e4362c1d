"""The kinds of random cases that hold the contract to account: each makes a case from a seed, runs it, and says what is wrong.

A kind is a module here with `run_case(seed, folder)`. The seed alone decides all of a case; the folder is new, empty and removed
afterwards. None: everything is right. A text says what is not; what it raises is wrong too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.contract import (
    control_files,
    engine,
    engine_in_store,
    followed,
    forgetful_disk,
    manifests,
    mutations,
    poison,
    replicas,
    retry,
    sinks,
    spark_rows,
    two_drivers,
)


@dataclass(frozen=True)
class Kind:
    """How a case is run, and how much of a long run is for cases of this kind."""

    run_case: Callable[[int, Path], str | None]
    share: float = 1.0
    """Of the time; 2 gets twice as much as 1."""


KINDS: dict[str, Kind] = {
    "engine": Kind(engine.run_case),
    "engine_in_store": Kind(engine_in_store.run_case, 0.7),
    "mutations": Kind(mutations.run_case),
    "spark_rows": Kind(spark_rows.run_case, 0.7),
    "retry": Kind(retry.run_case, 0.5),
    "manifests": Kind(manifests.run_case),
    "control_files": Kind(control_files.run_case, 0.3),
    "poison": Kind(poison.run_case),
    "followed": Kind(followed.run_case),
    "sinks": Kind(sinks.run_case),
    "forgetful_disk": Kind(forgetful_disk.run_case, 0.5),
    "two_drivers": Kind(two_drivers.run_case, 0.5),
    "replicas": Kind(replicas.run_case, 0.7),
}
