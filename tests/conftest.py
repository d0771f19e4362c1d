"""What all tests share: one Spark session, golden files, the Hypothesis profile."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.postgres import Postgres

GOLDEN = Path(__file__).parent / "golden"

hypothesis.settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden")
    parser.addoption("--seed", type=int, help="run the one random case of this seed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests with Spark: they take longest, and each process that has some has one session for them."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the test run, set up as Springtide wants it on one machine with local disks.

    PySpark is imported here and not above: a run without Spark tests never starts a JVM.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # a machine whose name does not resolve can run the tests too
    from pyspark import __version__
    from pyspark.sql import SparkSession

    from springtide.sparks import settings_of

    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # no time for better code
        "spark.local.dir": scratch / "local",
        "spark.sql.warehouse.dir": scratch / "warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.shuffle.compress": "false",  # blobs are compressed already
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        **settings_of(__version__),
    }
    builder = SparkSession.builder.master("local[2,4]").appName("springtide-tests")
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    session = builder.getOrCreate()
    yield session
    session.stop()


S3_SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
input()
"""


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """An S3-compatible server of its own process, by host and port. It knows no passwords and forgets everything at the end."""
    command = [sys.executable, "-c", S3_SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        yield f"127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


@pytest.fixture
def s3(s3_server: str) -> str:
    """The address of a new, empty bucket, with its secrets: what `Store.at` takes."""
    from pyarrow.fs import S3FileSystem

    name = f"bucket-{uuid.uuid4().hex[:8]}"
    S3FileSystem(
        access_key="tester",
        secret_key="hush-hush",
        endpoint_override=s3_server,
        scheme="http",
        allow_bucket_creation=True,
    ).create_dir(name)
    return f"s3://{name}?endpoint_override={s3_server}&scheme=http&access_key=tester&secret_key=hush-hush"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL server, started once."""
    from tests.servers.postgres import programs, running

    where = programs()
    if where is None:
        pytest.skip("PostgreSQL is not installed (Debian: the package postgresql)")
    with running(where) as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[Postgres]:
    """That server, with an empty database."""
    from springtide.tables.postgres import forget

    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    postgres_server.ask(others)  # runs that were killed leave connections open, which may hold locks
    postgres_server.ask("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    yield postgres_server
    forget()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` asserts that the text is what tests/golden/<name>.txt holds."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        actual = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        if actual != expected:
            shown = path.relative_to(GOLDEN.parent.parent)
            diff = difflib.unified_diff(
                expected.splitlines(), actual.splitlines(), f"{shown}", f"{shown} (this run)", lineterm=""
            )
            how = "if the new text is right, run `pytest --update-golden` and review the change"
            pytest.fail("\n".join([*diff, "", how]), pytrace=False)

    return check
