"""What may differ from one Spark to the next: its settings, and whatever random queries touch. `make sparks` runs this with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from springtide.sparks import settings_of
from tests.properties.queries import case
from tests.properties.test_engine import told

pytestmark = pytest.mark.spark


def test_the_classes_that_settings_name_are_in_this_spark(spark: Any) -> None:
    named = {name: value for name, value in settings_of(spark.version).items() if name.endswith("Class")}
    assert named
    for value in named.values():
        spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(value)


@pytest.mark.parametrize("seed", [0, 2, 4, 7])
def test_random_queries_give_the_rows_of_the_reference(spark: Any, tmp_path: Path, seed: int) -> None:
    one = case(seed, tmp_path / "input")
    expected = one.query.run_reference()
    run = one.query.start(
        spark,
        checkpoint=tmp_path / "ckpt",
        instances=1 + seed % 3,
        buckets=one.plan.buckets,
        rows_per_epoch=10 * one.rows_per_epoch,  # an epoch costs more here than in-process
    )
    run.wait()
    told(one, run._engine, expected)
