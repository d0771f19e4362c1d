"""Tables of lakes and Parquet files that our sinks wrote, in a folder and in an S3-compatible server, read by others: Polars, DuckDB and Spark, the
latter two with the lake's own library, in the environments of `make sparks`.

The locked Spark is newer than any of these libraries, and so is the locked DuckDB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pyspark
import pytest
from pyarrow.fs import S3FileSystem

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sparks import release
from springtide.testing import compare
from tests.machine import LONG

ROOT = Path(__file__).parents[2]
KINDS, PLACES = ("delta", "iceberg", "parquet"), ("folder", "s3")
KEY, PASSWORD = "tester", "hush-hush"

LIBRARIES = {
    ("delta", (4, 0)): "io.delta:delta-spark_4.0_2.13:4.4.0",
    ("delta", (4, 1)): "io.delta:delta-spark_4.1_2.13:4.4.0",
    ("delta", (4, 2)): "io.delta:delta-spark_4.2_2.13:4.4.0",
    ("iceberg", (4, 0)): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    ("iceberg", (4, 1)): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
"""The newest for each Spark that has one."""
HADOOP = {(4, 0): ("3.4.1", "2.24.12"), (4, 1): ("3.4.2", "2.29.52"), (4, 2): ("3.5.0", "2.35.4")}
"""The Hadoop that a Spark has, and what that has of Amazon's: Delta's library reads S3 with them."""
SPARK = release(pyspark.__version__)

# PyIceberg, and readers that end with their process, leave it to the collector to close files
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

TOWNS = ["a b", "c/d", None, "é=1", "50%"]
ROWS = pl.DataFrame(
    {
        "ts": [datetime(2024, 5, 1, 12, tzinfo=UTC) + timedelta(microseconds=n * 1_000_001) for n in range(15)],
        "local": [datetime(2024, 5, 1, 12) + timedelta(microseconds=n) if n != 5 else None for n in range(15)],
        "day": [date(2024, 5, 1 + n % 2) for n in range(15)],
        "town": [TOWNS[n % 5] for n in range(15)],
        "n": range(15),
        "share": [None if n == 7 else n / 7 for n in range(15)],
        "price": pl.Series([Decimal(n) / 4 for n in range(15)], dtype=pl.Decimal(9, 2)),
        "sure": [n % 2 == 0 for n in range(15)],
        "raw": [b"\x00\xff" * n for n in range(15)],
        "many": [list(range(n % 3)) for n in range(15)],
    }
)


@dataclass(frozen=True)
class Written:
    """Where the tables are."""

    folder: Path
    bucket: str
    server: str

    def at(self, kind: str, place: str) -> str:
        """The folder, or the address, of a Delta table and of Parquet files."""
        return str(self.folder / kind) if place == "folder" else f"s3://{self.bucket}/{kind}"

    def catalog(self, place: str) -> dict[str, str]:
        """A catalog in SQLite; the namespace is named after the place."""
        warehouse = f"file://{self.folder}/lake" if place == "folder" else f"s3://{self.bucket}/lake"
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": warehouse,
            "s3.endpoint": f"http://{self.server}",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": PASSWORD,
            "s3.region": "us-east-1",
        }

    @property
    def options(self) -> dict[str, str]:
        """How Delta's library and Polars get into the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.server}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_CONDITIONAL_PUT": "etag",
        }

    def sink(self, kind: str, place: str) -> Any:
        by = ["day", "town"]
        if kind == "delta":
            options = self.options if place == "s3" else None
            return st.delta_sink(self.at(kind, place), partition_by=by, options=options)
        if kind == "parquet":
            known = {"endpoint_override": self.server, "scheme": "http", "access_key": KEY, "secret_key": PASSWORD}
            return st.parquet_sink(
                self.at(kind, place), partition_by=by, storage_options=known if place == "s3" else None
            )
        return st.iceberg_sink(f"{place}.numbers", catalog=self.catalog(place), partition_by=by)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, s3_server: str) -> Written:
    """The same rows in every table, in several epochs, from two tasks."""
    for library in ("deltalake", "pyiceberg"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    tables = Written(tmp_path_factory.mktemp("lakes"), "lakes", s3_server)
    S3FileSystem(
        access_key=KEY, secret_key=PASSWORD, endpoint_override=s3_server, scheme="http", allow_bucket_creation=True
    ).create_dir(tables.bucket)
    source = st.source("rows", st.memory(ROWS), ts="ts")
    sinks = [source.to(tables.sink(kind, place), name=f"{kind}-{place}") for kind in KINDS for place in PLACES]
    run(st.Query("lakes", *sinks).plan(), tables.folder / "ckpt", Options(2, rows_per_epoch=4))
    return tables


def same(found: pl.DataFrame) -> None:
    compare(found.select(ROWS.columns).cast(ROWS.schema), ROWS)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")  # how Polars would plan it faster
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_polars_reads_it(kind: str, place: str, written: Written) -> None:
    options, where = written.options if place == "s3" else None, written.at(kind, place)
    if kind == "delta":
        same(pl.read_delta(where, storage_options=options))
        return
    if kind == "parquet":
        same(pl.read_parquet(f"{where}/**/*.parquet", hive_partitioning=True, storage_options=options))
        return
    from pyiceberg.catalog import load_catalog

    table = load_catalog("default", **written.catalog(place)).load_table(f"{place}.numbers")
    same(pl.scan_iceberg(table, storage_options=options).collect())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_duckdb_reads_it(kind: str, place: str, request: pytest.FixtureRequest) -> None:
    extensions = {"delta": ("httpfs", "delta"), "iceberg": ("httpfs", "avro", "iceberg"), "parquet": ("httpfs",)}[kind]
    if lacking := [name for name in extensions if find_spec(f"duckdb_extension_{name}") is None]:
        pytest.skip(f"DuckDB's {lacking[0]} extension is not installed, and is not fetched from the network here")
    import duckdb

    written: Written = request.getfixturevalue("written")
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    for needed in extensions:
        folder = Path(str(import_module(f"duckdb_extension_{needed}").__file__)).parent
        (library,) = folder.rglob(f"{needed}.duckdb_extension")
        connection.execute(f"LOAD '{library}'")  # DuckDB looks at its signature
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{PASSWORD}', ENDPOINT '{written.server}',"
        " URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')"
    )
    where = written.at(kind, place)
    table = f"delta_scan('{where}')"
    if kind == "parquet":
        table = f"read_parquet('{where}/**/*.parquet', hive_partitioning = true)"
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        known = load_catalog("default", **written.catalog(place)).load_table(f"{place}.numbers")
        table = f"iceberg_scan('{known.metadata_location}')"
    same(connection.sql(f"SELECT * FROM {table}").pl())


def packages_and_settings(kind: str, written: Written) -> tuple[list[str], dict[str, str]]:
    """What Spark needs to read tables of a kind, in a folder and in the server."""
    if kind == "delta":
        hadoop, amazon = HADOOP[SPARK]
        packages = [f"org.apache.hadoop:hadoop-aws:{hadoop}", f"software.amazon.awssdk:s3-transfer-manager:{amazon}"]
        return packages, {
            "spark.jars.excludes": "software.amazon.awssdk:bundle",  # 560 MB: all services of Amazon's
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": f"http://{written.server}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": KEY,
            "spark.hadoop.fs.s3a.secret.key": PASSWORD,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    lake = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{written.folder}/catalog.db",
        ".jdbc.schema-version": "V1",
        ".warehouse": f"{written.folder}/lake",
        ".io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        ".s3.endpoint": f"http://{written.server}",
        ".s3.access-key-id": KEY,
        ".s3.secret-access-key": PASSWORD,
        ".s3.path-style-access": "true",
        ".client.region": "us-east-1",
    }
    version = LIBRARIES[kind, SPARK].rpartition(":")[2]
    packages = [f"org.apache.iceberg:iceberg-aws-bundle:{version}", "org.xerial:sqlite-jdbc:3.50.3.0"]
    return packages, {f"spark.sql.catalog.default{name}": value for name, value in lake.items()}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_reads_it(kind: str, request: pytest.FixtureRequest) -> None:
    """In a process of its own, which has the jars; they are fetched once. The one that can read Delta tables can read Parquet files in the server too."""
    if (kind, SPARK) not in LIBRARIES:
        pytest.skip(f"there is no library of {kind} for Spark {pyspark.__version__}")
    written: Written = request.getfixturevalue("written")
    packages, settings = packages_and_settings(kind, written)
    settings |= {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.jars.packages": ",".join([LIBRARIES[kind, SPARK], *packages]),
    }
    tables = [
        (
            form,
            f"default.{p}.numbers" if kind == "iceberg" else written.at(form, p),
            str(written.folder / "read" / form / p),
        )
        for form in (("delta", "parquet") if kind == "delta" else ("iceberg",))
        for p in PLACES
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.lakes"],
        cwd=ROOT,
        input=json.dumps({"settings": settings, "tables": tables}),
        capture_output=True,
        text=True,
        timeout=2 * LONG,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    for _, _, out in tables:
        same(pl.read_parquet(f"{out}/*.parquet"))
