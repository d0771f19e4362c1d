"""Tables of lakes, read by Spark and by DuckDB, each with the lake's own library: in the environments of `make sparks`.

The locked Spark is newer than any of these libraries, and so is the locked DuckDB.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pyspark
import pytest

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sparks import release
from springtide.testing import compare
from tests.machine import LONG
from tests.unit.runtime.crashing import numbers
from tests.unit.sinks.kinds import ROWS, query_of

ROOT = Path(__file__).parents[2]
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
LIBRARIES = {
    ("delta", (4, 0)): "io.delta:delta-spark_4.0_2.13:4.4.0",
    ("delta", (4, 1)): "io.delta:delta-spark_4.1_2.13:4.4.0",
    ("delta", (4, 2)): "io.delta:delta-spark_4.2_2.13:4.4.0",
    ("iceberg", (4, 0)): f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0,{SQLITE}",
    ("iceberg", (4, 1)): f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,{SQLITE}",
}
"""The newest for each Spark that has one."""

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def write(kind: str, folder: Path) -> None:
    """Write a partitioned table in several epochs, from two tasks."""
    if find_spec("deltalake" if kind == "delta" else "pyiceberg") is None:
        pytest.skip(f"what writes {kind} is not installed")
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    sink = (
        st.delta_sink(folder / "table", partition_by="key")
        if kind == "delta"
        else st.iceberg_sink("lake.numbers", catalog=catalog, partition_by="key")
    )
    run(query_of(sink).plan(), folder / "ckpt", Options(2, rows_per_epoch=5))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_reads_it(kind: str, tmp_path: Path) -> None:
    packages = LIBRARIES.get((kind, release(pyspark.__version__)))
    if packages is None:
        pytest.skip(f"there is no library of {kind} for Spark {pyspark.__version__}")
    write(kind, tmp_path)
    command = [sys.executable, "-m", "tests.spark.lakes", kind, packages, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * LONG, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = numbers(ROWS)
    found = pl.read_parquet(tmp_path / "rows.parquet" / "*.parquet")
    compare(found.select(expected.columns).cast(expected.schema), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_duckdb_reads_it(kind: str, tmp_path: Path) -> None:
    if find_spec(f"duckdb_extension_{kind}") is None:
        pytest.skip(f"DuckDB's {kind} extension is not installed, and is not fetched from the network here")
    import duckdb

    write(kind, tmp_path)
    table = f"delta_scan('{tmp_path}/table')"
    if kind == "iceberg":
        newest = max((tmp_path / "lake").rglob("*.metadata.json"), key=lambda path: path.name)
        table = f"iceberg_scan('{newest}')"
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    for needed in ("delta",) if kind == "delta" else ("avro", "iceberg"):
        folder = Path(str(import_module(f"duckdb_extension_{needed}").__file__)).parent
        (library,) = folder.rglob(f"{needed}.duckdb_extension")
        connection.execute(f"LOAD '{library}'")  # DuckDB looks at its signature
    expected = numbers(ROWS)
    found = connection.sql(f"SELECT * FROM {table}").pl()
    compare(found.select(expected.columns).cast(expected.schema), expected)  # type: ignore[arg-type]
