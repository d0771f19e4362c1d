"""examples/kafka_to_postgres.py with a broker and a database of its own: run, scaled, killed, run again, and compared with a sequential run.

python -m scripts.pipeline [--records 60000] [--partitions 4]
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from springtide.state.answers import read_answer
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.testing import compare
from tests.kafka.broker import Topics, absent, broker
from tests.servers.postgres import Postgres, programs, running

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "kafka_to_postgres.py"
LONG = 600.0
"""Seconds to wait for anything, on the slowest machine."""


def main() -> None:
    """Run the whole of it."""
    parser = argparse.ArgumentParser(prog="pipeline", description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--partitions", type=int, default=4)
    given = parser.parse_args()
    where = programs()
    if where is None:
        raise SystemExit("PostgreSQL is not installed: run scripts/setup.sh postgres")
    if (why := absent()) is not None:
        raise SystemExit(why)
    with (
        broker() as kafka,
        running(where) as database,
        tempfile.TemporaryDirectory(prefix="springtide-pipeline-") as at,
    ):
        show(Topics(kafka.servers), database, Path(at) / "checkpoint", given.records, given.partitions)


def show(topics: Topics, database: Postgres, checkpoint: Path, records: int, partitions: int) -> None:
    """Run the example on a topic that is filled in three parts: before it starts, while it runs, and just before it is killed."""
    topics.new("calls", partitions)
    topics.new("calls.rejected")
    parts = [range(i * records // 3, (i + 1) * records // 3) for i in range(3)]
    environment = {"KAFKA_SERVERS": topics.servers, "DATABASE_URL": database.url}
    options = ["--elastic", "--max", "4", "--rows-per-epoch", str(max(1, records // 10))]

    fill(topics, parts[0], records, partitions)
    with started(checkpoint, environment, options) as child:
        wait(lambda: rows(database, "talk") > 0, "rows in the table", child)
        say(f"{rows(database, 'talk'):,} rows are in the table; asking for three instances")
        asked = send(checkpoint, Command("scale", {"step": "talk", "instances": 3}))
        fill(topics, parts[1], records, partitions)
        wait(lambda: read_answer(asked) is not None, "an answer", child)
        answer = read_answer(asked)
        assert answer is not None
        if answer.status not in ("done", "waiting"):
            raise SystemExit(f"it was not scaled: {answer.reason}")
        fill(topics, parts[2], records, partitions)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    say(
        f"killed, with its JVM and its workers, when {rows(database, 'talk'):,} rows were in the table; starting it again"
    )
    expected = sequential(environment)
    with started(checkpoint, environment, options) as child:
        wait(lambda: rows(database, "talk") >= expected.height, f"{expected.height:,} rows in the table", child)
        send(checkpoint, Command("stop"))
        child.wait(LONG)
    check(database, expected)
    epochs = Checkpoint(checkpoint).latest()
    assert epochs is not None
    say(
        f"{records:,} records, {epochs.epoch + 1} epochs, {expected.height:,} rows in the table: each of them once, and right"
    )


def sequential(environment: dict[str, str]) -> pl.DataFrame:
    """Return the rows that a sequential run of the example gives for what is in the topic."""
    os.environ.update(environment)
    query = runpy.run_path(str(EXAMPLE))["query"]
    rows: pl.DataFrame = query.run_reference(bounded=False).rows("every")
    return rows


def check(database: Postgres, expected: pl.DataFrame) -> None:
    """Compare both tables with the rows that must be there."""
    compare(table(database, "talk", expected), expected)
    latest = expected.sort("ts").group_by("src").last()
    compare(table(database, "latest", expected), latest.select(expected.columns))


def table(database: Postgres, name: str, like: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a table."""
    found = database.ask(f"SELECT {', '.join(like.columns)} FROM {name}")
    return pl.DataFrame(found, schema=like.schema, orient="row")


def rows(database: Postgres, name: str) -> int:
    """Count the rows of a table; none if it is not there yet."""
    if database.ask(f"SELECT to_regclass('{name}')") == [(None,)]:
        return 0
    ((count,),) = database.ask(f"SELECT count(*) FROM {name}")
    assert isinstance(count, int)
    return count


def fill(topics: Topics, numbers: range, records: int, partitions: int) -> None:
    """Put some of the records into the topic: 100 minutes of calls, in the order of time in each partition; each thousandth is none."""
    random, begin = Random(numbers.start), datetime(2024, 5, 1, tzinfo=UTC)
    producer = topics.producer()
    for number in numbers:
        call: dict[str, Any] = {"src": f"34-{random.randrange(500):03}", "seconds": random.randrange(600)}
        call["ts"] = (begin + timedelta(seconds=6000 * number // records)).isoformat()
        value = b"?" if number % 1000 == 999 else json.dumps(call).encode()
        producer.produce("calls", value, partition=number % partitions)
        if number % 10_000 == 0:
            producer.flush(LONG)
    assert producer.flush(LONG) == 0
    say(f"{len(numbers):,} records more are in the topic")


@contextmanager
def started(checkpoint: Path, environment: dict[str, str], options: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the example on Spark, in processes of its own; they are gone afterwards, whatever happens."""
    command = [sys.executable, "-m", "springtide.cli", "run", str(EXAMPLE), "--plain", "--checkpoint", str(checkpoint)]
    child = subprocess.Popen([*command, *options], env=os.environ | environment, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def wait(condition: Callable[[], bool], what: str, child: subprocess.Popen[bytes]) -> None:
    """Wait until something is so, for as long as the query runs."""
    until = time.monotonic() + LONG
    while not condition():
        if child.poll() is not None:
            raise SystemExit(f"the query has ended before there was {what}")
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.2)


def say(text: str) -> None:
    """Tell whoever watches."""
    print(f"── {text}", flush=True)


if __name__ == "__main__":
    main()
